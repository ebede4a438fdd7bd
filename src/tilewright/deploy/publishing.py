"""Writing an artifact: it appears in its folder complete, or the folder stays as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from msgspec import structs

from tilewright.core.errors import DamagedArtifact
from tilewright.core.output_files import attempting, undone_folders, write_text
from tilewright.core.results import OptimizeResult
from tilewright.core.scratch import PrivateFolder
from tilewright.core.weights import SHARED_WEIGHTS
from tilewright.deploy.hashes import file_sha256, sealed
from tilewright.deploy.manifest import (
    LIBRARIES,
    LIBRARY,
    MANIFEST,
    SCHEMA_VERSION,
    SHAPES,
    WEIGHTS,
    Machine,
    Manifest,
    Source,
    is_shape_set,
    read_manifest,
)
from tilewright.deploy.ports import input_ports, output_ports
from tilewright.deploy.racing import Race
from tilewright.deploy.shape_set import read_shape_set
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields
from tilewright.hardware.environment import installed_versions
from tilewright.kernels.compute_units import needed_features
from tilewright.kernels.island import NAME
from tilewright.models.quantizing import QUANTIZED
from tilewright.models.source import is_model_file

REPORT = "report.html"
DRAWING = "layouts.onnx"
CODES = QUANTIZED, f"{QUANTIZED}.data"
FILES = (LIBRARY, *LIBRARIES.values(), WEIGHTS, REPORT, DRAWING, *CODES, MANIFEST)
"""The files of an artifact, in the order in which they appear."""
_STAGING = ".staging-"
_PACKAGES = ("tilewright", "apache-tvm", "apache-tvm-ffi")
"""Their versions are kept."""


@contextmanager
def staging(folder: Path) -> Generator[Path]:
    """A folder of this process inside the output folder, in which all parts are made.

    It is gone afterwards, whatever happens; those of processes that were killed go, too. Where the
    block fails, an output folder that was not there before goes with it. Raises `OutputError` where
    it cannot be made.
    """
    with undone_folders(folder.absolute()):
        with attempting(f"write to {folder}", "Choose another --out folder."):
            private = PrivateFolder(folder, _STAGING)
        with private as made:
            yield made


def publish(made: Path, folder: Path) -> None:
    """Put the parts of an artifact that lie in `made` into `folder`, on the same file system.

    Nothing is copied, so no room is needed. The manifest of what lay there goes first and the new
    one comes last: without one nothing is taken for a complete artifact. Parts that the new one
    lacks are removed, and so are several shapes that lay there.
    """
    if made == folder:
        return
    with attempting(f"write to {folder}"):
        if is_shape_set(folder):
            forget_shapes(folder)
        for name in reversed(FILES):
            if name == MANIFEST or not (made / name).exists():
                (folder / name).unlink(missing_ok=True)
        for name in FILES:
            if (made / name).exists():
                (made / name).replace(folder / name)


@contextmanager
def reseal(folder: Path) -> Generator[None]:
    """Change the library or the weights of an artifact: its manifest, which goes first and comes
    last, has their new sizes and hashes."""
    manifest = read_manifest(folder)
    (folder / MANIFEST).unlink()
    try:
        yield
    except BaseException:
        _write(folder, manifest)
        raise
    files = manifest.files
    changed = structs.replace(
        manifest,
        sizes_bytes={name: (folder / name).stat().st_size for name in files},
        sha256={name: file_sha256(folder / name) for name in files},
    )
    _write(folder, changed)


def forget_shapes(folder: Path, kept: Sequence[str] = ()) -> None:
    """Remove the shapes of an artifact of several that lies in a folder, and weights that shapes
    shared, but folders and files that are `kept`."""
    try:
        members = [each.folder for each in read_shape_set(folder, verify=False).members]
    except DamagedArtifact:  # or none was there
        members = []
    (folder / SHAPES).unlink(missing_ok=True)
    for place in (folder / name for name in members if name not in kept):
        if (place / MANIFEST).is_file():
            remove_artifact(place)
            with suppress(OSError):  # something else is there, too
                place.rmdir()
    for path in folder.glob("weights-*.params"):
        if SHARED_WEIGHTS.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def remove_artifact(folder: Path) -> None:
    """Remove the artifact of one shape in a folder."""
    for name in reversed(FILES):
        (folder / name).unlink(missing_ok=True)


def write_manifest(race: Race, result: OptimizeResult) -> None:
    """Write `manifest.json`: interface, constants in parameter order, tasks, machine, times, and
    hashes of library, weights and itself."""
    network, placement, request = race.network, race.placement, race.request
    folder, plan = race.folder, race.winner.plan
    machine = Machine(
        class_key=placement.device.class_key,
        architecture=placement.target.architecture,
        model=placement.target.model,
        vector_bytes=placement.target.vector_bytes,
        features=needed_features(
            [call.candidate.implementation for call in plan.calls], placement.target
        ),
        target=json.loads(placement.tvm_target),
        threads=placement.resources.threads,
    )
    files = (machine.library, WEIGHTS)
    packages = (*_PACKAGES, *_engines(plan))
    installed = installed_versions(packages)
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        model=network.model.name,
        fingerprint=race.fingerprint,
        source=Source(
            model=_absolute(request.model),
            batch=request.options.batch,
            shapes=dict(request.options.shapes),
            seed=request.options.seed,
            given=request.origin,
            precision=network.precision,
        ),
        plan=plan_fields(plan),
        network_key=network.key,
        sizes_bytes={name: (folder / name).stat().st_size for name in files},
        sha256={name: file_sha256(folder / name) for name in files},
        inputs=input_ports(network),
        outputs=output_ports(network),
        constants=tuple(plan.constant_names),
        machine=machine,
        versions={name: installed.get(name, "none") for name in packages},
        result=asdict(result),
    )
    if network.model.quantized is not None and folder != request.folder:
        made = network.model.quantized.path
        with attempting(f"write to {folder}"):
            for path in made.parent.glob(f"{made.name}*"):
                shutil.copyfile(path, folder / path.name)
    _write(folder, manifest)


def _write(folder: Path, manifest: Manifest) -> None:
    content = sealed(manifest.content, MANIFEST)
    write_text(folder / MANIFEST, json.dumps(content, indent=1, sort_keys=True) + "\n")


def _engines(plan: NetworkPlan) -> frozenset[str]:
    """The packages that compute calls of a plan."""
    return frozenset({NAME for call in plan.calls if call.candidate.implementation == NAME})


def _absolute(model: str) -> str:
    """A path as an absolute one, so that the artifact finds its model from anywhere."""
    return str(Path(model).resolve()) if is_model_file(model) else model

"""The manifest beside a compiled network: what it is, made by what, for which machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from tilewright.compiler.cuda import network as cuda_network
from tilewright.core import codec, element_types, input_files, records
from tilewright.core.errors import DamagedArtifact, ModelError
from tilewright.core.records import Precision
from tilewright.core.weights import WEIGHTS, reference_in
from tilewright.deploy.hashes import file_sha256, is_sealed
from tilewright.graph.inputs import IndexRange
from tilewright.graph.network import UNKNOWN, TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import read_plan
from tilewright.kernels.cuda.base import CUDA
from tilewright.models import ModelOptions
from tilewright.store.known_candidates import PlanOfBefore, plan_of_before, read_shipped

LIBRARY = "model.so"
LIBRARIES = {CUDA: cuda_network.LIBRARY}
"""Files of compiled networks by TVM's kind of target; those for others are a `LIBRARY`."""
MANIFEST = "manifest.json"
SHAPES = "shapes.json"
"""In the folder of several shapes; each has a manifest in a folder of its own."""
SCHEMA_VERSION = 3
_WITHOUT_HASHES, _WITHOUT_PLANS = 1, 2
"""What was written before there were hashes has sizes only; what was written before there were
plans has candidates and forms."""
_LARGEST_BYTES = 256 << 20

Extent = Annotated[int, msgspec.Meta(ge=0)]
Axis = Annotated[int, msgspec.Meta(ge=UNKNOWN)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What an artifact was made from: the MODEL argument and its options. `given` says in words
    what the model was made from, where Python handed over an object."""

    model: str
    batch: Count | None
    shapes: dict[str, tuple[Extent, ...]]
    seed: int
    given: str = ""
    precision: Precision = "float32"

    @property
    def options(self) -> ModelOptions:
        """The options as the models layer takes them."""
        return ModelOptions(
            batch=self.batch, shapes=self.shapes, seed=self.seed, precision=self.precision
        )


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """An input or an output under the ONNX file's name; an axis of -1 is known only when the
    network has run.

    `index_ranges` is empty for values that are no indices, else [smallest, largest] for all of them
    or for each position along the last axis.
    """

    name: str
    shape: tuple[Axis, ...]
    dtype: str
    index_ranges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not element_types.is_element_type(self.dtype):
            raise ValueError(f"Unknown element type {self.dtype!r}")
        if len(self.index_ranges) > 1 and self.shape[-1:] != (len(self.index_ranges),):
            raise ValueError(f"`index_ranges` has {len(self.index_ranges)} entries")

    @property
    def type(self) -> TensorType:
        """What arrays for it, or of it, are like."""
        return TensorType(self.shape, self.dtype)

    @property
    def ranges(self) -> tuple[IndexRange, ...]:
        """The same as `graph.inputs` has it."""
        return tuple(IndexRange(lowest=low, highest=high) for low, high in self.index_ranges)


class _CandidateOfBefore(msgspec.Struct, frozen=True, kw_only=True, rename=codec.FILE_NAMES):
    """How a task was computed, in manifests up to schema version 2."""

    implementation: str
    settings: dict[str, records.KnobValue]
    forms: tuple[str, ...]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What it was compiled for; a processor without vector registers has 0 bytes of them."""

    class_key: str = msgspec.field(name="class")
    architecture: str
    model: str
    vector_bytes: Extent
    features: tuple[str, ...]
    target: dict[str, Any]
    threads: Count

    @property
    def kind(self) -> str:
        """TVM's kind of target: `llvm`, `cuda`."""
        return str(self.target.get("kind", "llvm"))

    @property
    def library(self) -> str:
        """The file that holds a compiled network for it."""
        return LIBRARIES.get(self.kind, LIBRARY)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `manifest.json` holds; `sha256` is empty where it was written before there were hashes.

    `plan` is the network's plan as `graph.plan_fields` writes it; up to schema version 2 it had the
    forms that were not the default ones, and `assignment` the candidate of each task. `constants`
    are names of weights, in the order in which the network takes them after its inputs.
    """

    schema_version: int
    model: str
    fingerprint: str
    source: Source
    sizes_bytes: dict[str, int]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: tuple[str, ...]
    machine: Machine
    versions: dict[str, str]
    result: dict[str, Any]
    plan: dict[str, Any] = {}
    assignment: dict[str, Any] = {}
    network_key: str = ""
    sha256: dict[str, str] = {}

    def __post_init__(self) -> None:
        for ports, kind in ((self.inputs, "inputs"), (self.outputs, "outputs")):
            if len({port.name for port in ports}) < len(ports):
                raise ValueError(f"Two {kind} have one name")
        if not all(port.type.is_static for port in self.inputs):
            raise ValueError("An input has an axis that is not known")
        if not self.outputs:
            raise ValueError("There are no outputs")
        for name in ("apache-tvm", "apache-tvm-ffi"):
            if name not in self.versions:
                raise ValueError(f"`versions` lacks {name!r}")

    @property
    def files(self) -> tuple[str, str]:
        """The files that a network runs from: what was compiled, and its weights."""
        return self.machine.library, WEIGHTS

    @property
    def content(self) -> dict[str, Any]:
        """The same as json has it."""
        content: dict[str, Any] = json.loads(json.dumps(codec.to_builtins(self)))
        if self.schema_version > _WITHOUT_PLANS:
            del content["assignment"]
        return content

    @property
    def shipped_plan(self) -> NetworkPlan | PlanOfBefore:
        """What was compiled. Raises ValueError where that cannot be read."""
        if self.schema_version > _WITHOUT_PLANS:
            return read_plan(self.plan)
        before = codec.convert(self.assignment, dict[str, _CandidateOfBefore])
        assignment = {
            key: {
                "implementation": candidate.implementation,
                "settings": sorted(candidate.settings.items()),
                "layouts": candidate.forms,
            }
            for key, candidate in before.items()
        }
        return read_shipped(plan_of_before(assignment, self.plan))


def read_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """The manifest of an artifact folder.

    Raises ModelError for anything else: no manifest, one that is damaged (without `verify` only
    where its form shows it), one of another schema.
    """
    path = folder / MANIFEST
    content = _parsed(path)
    known = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    found = known.get("schema_version")
    if found not in (SCHEMA_VERSION, _WITHOUT_PLANS, _WITHOUT_HASHES):
        raise ModelError(
            f"{str(path)!r} has schema version {found}, this tilewright reads "
            f"{_WITHOUT_HASHES} to {SCHEMA_VERSION}",
            hint="Run `tilewright optimize` again with this version.",
        )
    hashed = found != _WITHOUT_HASHES
    try:
        manifest = codec.convert(known, Manifest)
    except msgspec.ValidationError as error:
        raise DamagedArtifact(path, str(error)) from error
    if hashed != bool(manifest.sha256) or (verify and hashed and not is_sealed(known, MANIFEST)):
        raise DamagedArtifact(
            path,
            "its content does not fit its hash",
            hint="Run `tilewright optimize` again; --no-verify takes a file that was changed on "
            "purpose.",
        )
    try:
        _ = manifest.shipped_plan
    except ValueError as error:
        raise DamagedArtifact(path, f"in `plan`: {error}") from error
    return manifest


def _parsed(path: Path) -> Any:
    """The JSON in a file, unless it is too large for a manifest, or no file."""
    try:
        input_files.require_regular(path)
        if path.stat().st_size > _LARGEST_BYTES:
            raise DamagedArtifact(path, "it is too large for a manifest")
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"{str(path.parent)!r} is no compiled network: it has no {MANIFEST}",
            hint="Give the folder that `tilewright optimize` wrote.",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"cannot read {str(path)!r}: {error}", hint="Run `tilewright optimize` again."
        ) from error


def require_files(folder: Path, manifest: Manifest, *, verify: bool = True) -> None:
    """Raise ModelError when the library or the weights are missing or not as they were written:
    as long, and, with `verify`, with the same content; so for weights that lie in a file which
    other shapes share."""
    for name in manifest.files:
        known = manifest.sha256.get(name) if verify and manifest.sha256 else None
        _require_file(folder, folder / name, manifest.sizes_bytes.get(name), known)
    try:
        reference = reference_in(folder / WEIGHTS)
    except ValueError as error:
        raise DamagedArtifact(folder, str(error)) from error
    if reference is not None:
        shared = folder / reference.file
        _require_file(folder, shared, reference.size_bytes, reference.sha256 if verify else None)


def _require_file(folder: Path, path: Path, size_bytes: int | None, sha256: str | None) -> None:
    """Raise ModelError for a file of an artifact that is not there or not as it was written."""
    fault = ""
    try:
        if not path.is_file():
            fault = "lacks"
        elif path.stat().st_size != size_bytes:
            fault = "is damaged or was cut short in"
        elif sha256 is not None and file_sha256(path) != sha256:
            fault = "is damaged: the content does not fit its hash in"
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if fault:
        raise ModelError(
            f"{str(folder)!r} {fault} {path.name}", hint="Run `tilewright optimize` again."
        )


def is_artifact(argument: str) -> bool:
    """Whether a MODEL argument is a folder that `optimize` wrote, of one shape or of several."""
    folder = Path(argument)
    return ":" not in argument and ((folder / MANIFEST).is_file() or is_shape_set(folder))


def is_shape_set(folder: Path) -> bool:
    """Whether a folder is an artifact of several shapes."""
    return (folder / SHAPES).is_file()

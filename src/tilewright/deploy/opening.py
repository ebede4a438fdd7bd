"""Artifacts where a MODEL is expected: the network that one was made from, and its kernels."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tilewright.core import artifacts, codec, errors, targets
from tilewright.core.records import Candidate, Placement
from tilewright.core.results import TaskReport
from tilewright.core.weights import own_bytes, weights_of
from tilewright.deploy.manifest import (
    MANIFEST,
    SHAPES,
    WEIGHTS,
    Manifest,
    is_artifact,
    is_shape_set,
    read_manifest,
    require_files,
)
from tilewright.deploy.shape_set import Member, described, read_shape_set
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.tasks import Task
from tilewright.kernels import registry, search_space
from tilewright.kernels.island import SPEC
from tilewright.measure import targeting
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import CALIBRATED, ON_CODES, OnnxReference, PreparedNetwork
from tilewright.models.quantizing import QUANTIZED
from tilewright.plan.preparation import prepare, prepare_loaded
from tilewright.report import islands
from tilewright.store.known_candidates import PlanOfBefore, shipping_key

_UNHASHED = "It was written before artifacts had hashes: only sizes of its files are checked."


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedArtifact:
    """The folder of a compiled network and its manifest, both as they were written."""

    folder: Path
    manifest: Manifest

    @property
    def islands(self) -> tuple[str, ...]:
        """A sentence for each part that ONNX Runtime computes. Raises ModelError for a manifest
        whose tasks cannot be read."""
        tasks = self.manifest.result.get("tasks", ())
        try:
            return islands.of_tasks(codec.convert(tasks, tuple[TaskReport, ...]))
        except msgspec.ValidationError as error:
            raise errors.DamagedArtifact(self.folder / MANIFEST, f"in `tasks`: {error}") from error

    def require_engine(self) -> None:
        """Raise TargetError where ONNX Runtime computes parts of it and is not installed."""
        missing = SPEC.missing() if self.islands else ""
        if missing:
            raise errors.TargetError(
                f"{self.islands[0]} {missing} is not installed here.",
                hint=f"pip install {missing}",
            )

    def allowed(self, placement: Placement) -> Placement:
        """The placement with the precision that it was compiled in. Raises TargetError for a device
        that does not compute in it."""
        options = self.manifest.source.options
        try:
            return targeting.allowing(placement, options)
        except errors.TargetError as error:
            raise errors.TargetError(
                f"{str(self.folder)!r} was compiled in {options.precision}, and {error.message}",
                hint="What is compiled keeps its precision: leave this device out, or compile "
                f"{self.manifest.source.model!r} again without --precision.",
            ) from error

    def network(self, placement: Placement) -> PreparedNetwork:
        """The model it was made from, imported again.

        Raises ModelError when that is another network by now, and as `allowed`.
        """
        network, known = self.network_for(self.allowed(placement)), self.manifest.network_key
        if known and known != network.key:
            raise self._other_network("its operators are different now")
        return network

    def network_for(self, allowed: Placement) -> PreparedNetwork:
        """The same in the precision of a placement, with the codes that it was compiled with.
        Raises ModelError when its inputs and outputs are other ones by now."""
        source, manifest = self.manifest.source, self.manifest
        usual, path = source.options, (self.folder / QUANTIZED).absolute()
        if source.precision == ON_CODES:
            usual = replace(source.options, precision=ModelOptions().precision)
        model = loading.load(source.model, usual)
        if source.precision in CALIBRATED and path.exists():
            model = loading.with_codes(model, OnnxReference(path=path))
        network = prepare_loaded(model, source.options, allowed)
        types = network.model.graph.types
        inputs = [(name, types[name].shape, types[name].dtype) for name in network.graph.inputs]
        known = [(port.name, port.shape, port.dtype) for port in manifest.inputs]
        outputs = tuple(port.name for port in manifest.outputs)
        if inputs != known or network.model.outputs != outputs:
            raise self._other_network("its inputs and outputs are different now")
        return network

    def is_for(self, placement: Placement) -> bool:
        """Whether it was compiled for this kind of processor."""
        return self.manifest.machine.kind == json.loads(placement.tvm_target)["kind"]

    def require_for(self, placement: Placement) -> None:
        """Raise TargetError where it was compiled for another kind of processor."""
        machine = self.manifest.machine
        if not self.is_for(placement):
            raise errors.TargetError(
                f"{str(self.folder)!r} was compiled for {machine.kind} ({machine.model}), not for "
                f"{placement.target.model}",
                hint=f"Give the target it was made for: --target {machine.kind}.",
            )

    def plan(self, network: PreparedNetwork, placement: Placement) -> NetworkPlan:
        """What was compiled, for this placement.

        Raises ModelError for a plan that does not fit the network, and for settings that no kernel
        has here; TargetError for a placement on another kind of processor.
        """
        self.require_for(placement)
        found = self.manifest.shipped_plan
        try:
            if isinstance(found, PlanOfBefore):
                plan = found.planned(network, placement)
                for key, task in plan.tasks.items():
                    if shipping_key(key) not in found.assignment:
                        raise self._other_network(f"it has no task {task.workload.key}")
            else:
                plan = found.on(lane_of(placement))
        except (KeyError, ValueError, errors.InternalError) as error:
            raise self._other_network(f"its layouts do not fit: {error}") from error
        made_for = replace(
            placement, resources=targets.threads_alone(self.manifest.machine.threads)
        )
        kernels = dict.fromkeys((call.task, call.candidate) for call in plan.calls)
        for key, candidate in kernels:
            task = plan.tasks[key]
            if not _is_possible(task, candidate, made_for):
                raise self._other_network(
                    f"{candidate.implementation} has no such settings for {task.workload.key}"
                )
        return plan

    def _other_network(self, reason: str) -> errors.ModelError:
        return errors.ModelError(
            f"{str(self.folder)!r} no longer fits {self.manifest.source.model!r}: {reason}",
            hint="Run `tilewright optimize` again.",
        )


def open_artifact(folder: Path, *, verify: bool = True) -> OpenedArtifact:
    """An artifact whose files are there and, with `verify`, as they were written.

    Raises ModelError otherwise.
    """
    manifest = read_manifest(folder, verify=verify)
    require_files(folder, manifest, verify=verify)
    return OpenedArtifact(folder=folder, manifest=manifest)


def open_member(folder: Path, member: Member, *, verify: bool = True) -> OpenedArtifact:
    """One of several shapes whose artifact lies in `folder`. Raises ModelError as `open_artifact`,
    and where another network lies there by now."""
    opened = open_artifact(folder / member.folder, verify=verify)
    if opened.manifest.fingerprint != member.fingerprint:
        raise errors.DamagedArtifact(folder, f"{member.folder} is another network by now")
    return opened


def input_names(folder: Path, *, verify: bool = True) -> list[str]:
    """The inputs of an artifact, of one shape or of several. Raises ModelError for neither."""
    if is_shape_set(folder):
        folder /= read_shape_set(folder, verify=verify).members[0].folder
    return [port.name for port in read_manifest(folder, verify=verify).inputs]


def opened_artifact(
    model: str, options: ModelOptions, *, verify: bool = True
) -> OpenedArtifact | None:
    """The artifact where a MODEL argument is one's folder, of several shapes that which the options
    name; else None. Raises as `open_model` does."""
    if not is_artifact(model):
        return None
    folder = Path(model)
    if is_shape_set(folder):
        shapes = read_shape_set(folder, verify=verify)
        artifact = open_member(
            folder, shapes.asked_for(options.batch, options.shapes), verify=verify
        )
    elif options.batch is not None or options.shapes:
        raise errors.UsageError(
            f"{model!r} was compiled for fixed shapes, which --batch and --shape cannot change",
            hint="Leave --batch and --shape out, or give the model it was made from.",
        )
    else:
        artifact = open_artifact(folder, verify=verify)
    _require_precision(model, options, artifact)
    return artifact


def open_model(
    model: str, options: ModelOptions, placement: Placement, *, verify: bool = True
) -> tuple[PreparedNetwork, OpenedArtifact | None]:
    """The network of a MODEL argument, and the artifact where the argument is one's folder; of
    several shapes that which the options name.

    Raises UsageError where an artifact is to have other shapes, TargetError where it does not run
    on the device, ModelError as `open_artifact` does.
    """
    artifact = opened_artifact(model, options, verify=verify)
    if artifact is None:
        return prepare(model, options, placement), None
    return artifact.network(placement), artifact


def _require_precision(model: str, options: ModelOptions, artifact: OpenedArtifact) -> None:
    """Raise UsageError where an artifact is to be in another precision than it is."""
    own = artifact.manifest.source.precision
    if options.precision not in (own, ModelOptions().precision):
        raise errors.UsageError(
            f"{model!r} was compiled in {own}, which --precision cannot change",
            hint="Leave --precision out, or give the model it was made from.",
        )


def shipped_already(folder: Path, fingerprint: str) -> bool:
    """Whether the folder holds the artifact with this fingerprint, complete and undamaged."""
    try:
        return open_artifact(folder).manifest.fingerprint == fingerprint
    except errors.ModelError:
        return False


def describe(folder: Path, *, verify: bool = True) -> artifacts.ArtifactResult:
    """What an artifact is, without loading it; `verify` as in `load`. Raises ModelError."""
    manifest = open_artifact(folder, verify=verify).manifest
    known = {
        "artifact": str(folder),
        "model": manifest.model,
        "source": codec.to_builtins(manifest.source),
        "fingerprint": manifest.fingerprint,
        "inputs": codec.to_builtins(manifest.inputs),
        "outputs": codec.to_builtins(manifest.outputs),
        "target": manifest.machine.target,
        "threads": manifest.machine.threads,
        "machine": manifest.machine.model,
        "device_class": manifest.machine.class_key,
        "versions": manifest.versions,
        "files": [
            _described(folder, manifest, name, verify=verify)
            for name in (*manifest.files, MANIFEST)
        ],
        "warnings": () if manifest.sha256 else (_UNHASHED,),
    }
    try:
        return codec.convert({"tasks": (), **manifest.result, **known}, artifacts.ArtifactResult)
    except msgspec.ValidationError as error:
        raise errors.DamagedArtifact(folder / MANIFEST, f"in `result`: {error}") from error


def describe_shapes(folder: Path, *, verify: bool = True) -> artifacts.ShapesResult:
    """What an artifact of several shapes is; `verify` as in `load`. Raises ModelError."""
    shapes = read_shape_set(folder, verify=verify)
    opened = [open_member(folder, each, verify=verify) for each in shapes.members]
    files = {weights_of(each.folder) for each in opened} | {
        each.folder / each.manifest.machine.library for each in opened
    }
    rows = [
        {
            **each.manifest.result,
            "shape": described(member.sizes),
            "sizes": member.sizes,
            "alone_bytes": (each.folder / each.manifest.machine.library).stat().st_size
            + own_bytes(each.folder / WEIGHTS),
            "artifact": str(each.folder),
        }
        for member, each in zip(shapes.members, opened, strict=True)
    ]
    try:
        return artifacts.ShapesResult(
            model=shapes.model,
            artifact=str(folder),
            shapes=codec.convert(rows, tuple[artifacts.ShapeRow, ...]),
            padded=tuple(axis.name for axis in shapes.axes if axis.pads),
            size_bytes=sum(path.stat().st_size for path in files),
        )
    except msgspec.ValidationError as error:
        raise errors.DamagedArtifact(folder / SHAPES, f"in a shape's result: {error}") from error


def _described(folder: Path, manifest: Manifest, name: str, *, verify: bool) -> dict[str, Any]:
    known = manifest.sha256.get(name)
    state = "size only" if known is None else "verified" if verify else "not checked"
    return {
        "name": name,
        "size_bytes": (folder / name).stat().st_size,
        "sha256": known,
        "state": state,
    }


def _is_possible(task: Task, candidate: Candidate, placement: Placement) -> bool:
    spec = registry.implementations().get(candidate.implementation)
    if spec is None or candidate.forms != task.forms or not registry.is_for(spec, placement.target):
        return False
    if not spec.applies(task.workload, placement.target, placement.resources):
        return True  # those that are never enumerated, such as traces
    knobs = search_space.knob_space(
        spec, task.workload, placement.target, placement.resources, task.forms
    )
    return knobs.number(dict(candidate.settings)) is not None

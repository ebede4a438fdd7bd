"""Running what `optimize` shipped: loaded into this process, or on the device it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

from tilewright.core import arguments, records, targets
from tilewright.core.errors import DamagedArtifact, TargetError, UsageError
from tilewright.core.events import EventSink, Note, discard
from tilewright.core.forks import is_forked
from tilewright.deploy.decoding import Decoder, Stage
from tilewright.deploy.engines import Engine, engine_of
from tilewright.deploy.manifest import Machine, Manifest, Port, is_shape_set
from tilewright.deploy.network_calls import (
    CallableNetwork,
    NamedCalls,
    named_outputs,
    ordered_inputs,
    typed_arrays,
)
from tilewright.deploy.opening import OpenedArtifact, open_artifact, open_member
from tilewright.deploy.shape_set import Choice, Member, ShapeSet, read_shape_set
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.kernels.base import LLVM
from tilewright.kernels.cuda.base import CUDA
from tilewright.measure.targeting import in_this_process, open_networks
from tilewright.report import shown

_NAME = "network"
_TILES = (
    " Tile registers (amx-…) count only where Linux lets a process use them, which containers and "
    "virtual machines may forbid."
)


class Artifact(CallableNetwork):
    """A compiled network from its folder, ready to run in this process.

    Call it with arrays in the order of `inputs`, or by the names of the ONNX file. With one output
    it returns the array, with several a dictionary by name. `manifest` is what `optimize` wrote,
    `threads` how many a call uses, `folder` where the files are. Any thread may call it. `islands`
    says of each part that ONNX Runtime computes what, its share of the time, and why.
    """

    def __init__(self, opened: OpenedArtifact, engine: Engine) -> None:
        manifest, folder = opened.manifest, opened.folder
        self.manifest: Mapping[str, Any] = manifest.content
        self._opened = opened
        self.folder = folder
        self.islands = opened.islands
        ports = manifest.inputs, manifest.outputs
        super().__init__(ports, engine, partial(engine.open, folder, manifest.constants))
        if self._network.input_count != len(self.inputs):
            raise self._broken(f"{manifest.machine.library} has another number of inputs")

    @property
    def input_ports(self) -> tuple[Port, ...]:
        """The inputs with their types and the values that indices may take."""
        return self._opened.manifest.inputs

    def _title(self) -> str:
        return self._opened.manifest.model

    def _facts(self) -> dict[str, str]:
        """Also how fast it was, where it is and what it was made from."""
        manifest, found = self._opened.manifest, super()._facts()
        if manifest.result.get("latency_s"):
            found["latency"] = f"{shown.seconds(manifest.result['latency_s'])} when it was made"
        made = manifest.source.given or manifest.source.model
        return found | {"folder": str(self.folder), "made from": made}

    def _broken(self, reason: str) -> DamagedArtifact:
        return DamagedArtifact(self.folder, reason)


class ShapedArtifact(NamedCalls):
    """A compiled network of several shapes, ready to run in this process.

    Call it as an `Artifact`, with arrays of any of its shapes: `choice` says which of them computes
    arrays, and whether they are padded. `artifact` gives one of them. Each is read when it is first
    needed; weights that they share are in memory once. `threads` and `islands` are as an
    artifact's. Any thread may call it.
    """

    def __init__(
        self, folder: Path, shapes: ShapeSet, threads: int | None, *, verify: bool
    ) -> None:
        """Raises TargetError where a shape does not run in this process."""
        self.folder = folder
        self.shapes = shapes
        opened = [open_member(folder, member, verify=False) for member in shapes.members]
        for each in opened:
            refuse_here(each)
        self._engine = engine_of(opened[0].manifest.machine, threads, shared=True)
        self.threads = self._engine.threads
        self.islands = tuple(dict.fromkeys(told for each in opened for told in each.islands))
        self._verify = verify
        self._loaded: dict[str, Artifact] = {}
        self._turn = Lock()
        first = opened[0].manifest
        self._ports = first.inputs
        self.inputs = tuple(port.name for port in first.inputs)
        self.outputs = tuple(port.name for port in first.outputs)

    def artifact(self, **sizes: int) -> Artifact:
        """One of the shapes by the sizes of its axes: `artifact(batch=4)`. Raises UsageError where
        there is none of these."""
        return self._opened(self.shapes.member(sizes))

    def choice(self, inputs: Mapping[str, Array]) -> Choice:
        """Which shape computes these arrays. Raises UsageError where none does."""
        return _choice(self.shapes, self._arrays(inputs))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on inputs by name, in the shape that `choice` tells; returns outputs by name.

        Raises as `choice`, and as an `Artifact` does.
        """
        arrays = self._arrays(inputs)
        chosen = _choice(self.shapes, arrays)
        network = self._opened(chosen.member)
        return chosen.cut(network.run(chosen.padded(network.input_ports, arrays)))

    def _arrays(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return typed_arrays(self._ports, arguments.named_of(inputs, "inputs"))

    def _opened(self, member: Member) -> Artifact:
        known = self._loaded.get(member.folder)
        if known is not None:
            return known
        # whoever had the turn in the parent of a fork never gives it back here
        with nullcontext() if is_forked() else self._turn:
            if member.folder not in self._loaded:
                opened = open_member(self.folder, member, verify=self._verify)
                self._loaded[member.folder] = Artifact(opened, self._engine)
            return self._loaded[member.folder]

    def _title(self) -> str:
        return self.shapes.model

    def _facts(self) -> dict[str, str]:
        return {
            "inputs": ", ".join(self.inputs),
            "outputs": ", ".join(self.outputs),
            "threads": str(self.threads),
            **{axis.name: ", ".join(map(str, axis.sizes)) for axis in self.shapes.axes},
            "folder": str(self.folder),
        }


def load(
    path: arguments.Text, *, threads: int | None = None, verify: bool = True
) -> Artifact | ShapedArtifact | Decoder:
    """Load a compiled network from its folder; one of several shapes takes arrays of each of them,
    and a decoder makes tokens.

    `threads` defaults to the physical cores allotted to this process; `verify` has the content of
    every file checked by its hash. Raises ModelError when the folder is no artifact or a file is
    damaged, TargetError when this CPU lacks an instruction set it was compiled for, another TVM is
    installed, or ONNX Runtime is not and computes parts of the network.
    """
    folder = arguments.path_of(path, "path")
    if not is_shape_set(folder):
        return load_one(folder, threads, verify=verify)
    decodes = read_shape_set(folder, verify=verify).decoder is not None
    return (load_decoder if decodes else load_shapes)(folder, threads, verify=verify)


def load_one(folder: Path, threads: int | None, *, verify: bool = True) -> Artifact:
    """The same for an artifact of one shape."""
    count = None if threads is None else arguments.count_of(threads, "threads", 1)
    opened = open_artifact(folder, verify=verify)
    refuse_here(opened)
    return Artifact(opened, engine_of(opened.manifest.machine, count))


def load_shapes(folder: Path, threads: int | None, *, verify: bool = True) -> ShapedArtifact:
    """The same for an artifact of several."""
    count = None if threads is None else arguments.count_of(threads, "threads", 1)
    return ShapedArtifact(folder, read_shape_set(folder, verify=verify), count, verify=verify)


def load_decoder(folder: Path, threads: int | None, *, verify: bool = True) -> Decoder:
    """The same for a decoder."""
    return decoder_of(folder, read_shape_set(folder, verify=verify), threads, verify=verify)


def decoder_of(
    folder: Path, shapes: ShapeSet, threads: int | None, *, verify: bool = True
) -> Decoder:
    """The same for one whose `shapes.json` would say this."""
    from tilewright.compiler.execute import LoadedNetwork, WeightsPool

    count = None if threads is None else arguments.count_of(threads, "threads", 1)
    roles, pool, stages = shapes.decoder, WeightsPool(), list[Stage]()
    precision: records.Precision = "float32"
    assert roles is not None, "a decoder"
    for member in shapes.members:
        opened = open_member(folder, member, verify=verify)
        if opened.manifest.machine.kind == CUDA:
            raise TargetError("a decoder runs on a CPU, and this one was made for a GPU")
        refuse_here(opened)
        precision = opened.manifest.source.precision
        ports = {port.name: port for port in opened.manifest.inputs}
        known = ports[roles.tokens].ranges
        stages.append(
            Stage(
                network=LoadedNetwork.open(opened.folder, opened.manifest.constants, pool),
                inputs={name: port.type for name, port in ports.items()},
                outputs=[port.name for port in opened.manifest.outputs],
                vocabulary=known[0].highest + 1 if len(known) == 1 else None,
            )
        )
    placement = replace(local_placement(count), precision=precision)
    return Decoder(roles, stages, placement)


def refuse_here(opened: OpenedArtifact) -> None:
    """Raise TargetError where an artifact does not run in this process, as far as that is known
    before it is loaded: of GPUs, their driver tells."""
    if opened.manifest.machine.kind == CUDA:
        return
    refuse_other_machine(opened.manifest.machine, local_placement(None).target)
    _refuse_other_versions(opened.manifest)
    opened.require_engine()


def run_on(
    folder: Path,
    inputs: Mapping[str, Array],
    placement: records.Placement,
    *,
    verify: bool = True,
    events: EventSink = discard,
) -> dict[str, Array]:
    """The outputs of one run by name: in this process where the device is this machine, else there.
    A note tells of each island.

    Raises as `load` and its calls do, TargetError for a device that is lost.
    """
    if is_shape_set(folder):
        return _run_shape(folder, inputs, placement, verify=verify, events=events)
    if in_this_process(placement):
        network = load_one(folder, placement.resources.threads, verify=verify)
        for sentence in network.islands:
            events(Note(message=sentence))
        return network.run(inputs)
    opened = open_artifact(folder, verify=verify)
    manifest = opened.manifest
    refuse_elsewhere(opened, placement)
    ordered = ordered_inputs(manifest.inputs, inputs)
    with open_networks(placement) as networks:
        networks.load(_NAME, opened.folder, manifest.constants)
        results = networks.run(_NAME, ordered)
    return named_outputs(manifest.outputs, results, partial(DamagedArtifact, opened.folder))


def _run_shape(
    folder: Path,
    inputs: Mapping[str, Array],
    placement: records.Placement,
    *,
    verify: bool,
    events: EventSink,
) -> dict[str, Array]:
    """The same in that of several shapes which takes the arrays; a note says which."""
    shapes = read_shape_set(folder, verify=verify)
    if shapes.decoder is not None:
        raise UsageError(
            f"{str(folder)!r} is a decoder, which is not run once: it makes token after token",
            hint=f"In Python: tilewright.load({str(folder)!r}).generate(prompt, count).",
        )
    first = open_member(folder, shapes.members[0], verify=False).manifest
    given = typed_arrays(first.inputs, inputs)
    chosen = _choice(shapes, given)
    events(Note(message=f"{chosen}."))
    opened = open_member(folder, chosen.member, verify=verify)
    arrays = chosen.padded(opened.manifest.inputs, given)
    return chosen.cut(run_on(opened.folder, arrays, placement, verify=verify, events=events))


def _choice(shapes: ShapeSet, arrays: Mapping[str, Array]) -> Choice:
    return shapes.choice({name: array.shape for name, array in arrays.items()})


def refuse_other_machine(
    machine: Machine, target: targets.Target, where: str = "this machine"
) -> None:
    """Raise TargetError where what was compiled for a machine does not run on a processor."""
    if where == "this machine" and machine.kind != LLVM:
        raise TargetError(
            f"compiled for {machine.kind} ({machine.model}), not for {target.model}",
            hint=f"Give the target it was made for: --target {machine.kind}.",
        )
    hint = f"Run `tilewright optimize` for {where}."
    if where == "this machine":
        hint = (
            "Run `tilewright optimize` on this machine. An artifact made for a board runs there: "
            "copy the folder, or give `tilewright run` its --target rpc:KEY and --tracker."
        )
    if machine.architecture != target.architecture:
        raise TargetError(
            f"compiled for {machine.architecture}, {where} is {target.architecture}", hint=hint
        )
    missing = sorted(set(machine.features) - set(target.features))
    if missing:
        lacks = "this CPU lacks" if where == "this machine" else f"{where} lacks"
        hint += _TILES if any(name.startswith("amx-") for name in missing) else ""
        raise TargetError(f"compiled for {machine.model}; {lacks} {', '.join(missing)}", hint=hint)


def refuse_elsewhere(opened: OpenedArtifact, placement: records.Placement) -> None:
    """The same for the device of a placement, under its own name; and where ONNX Runtime computes
    parts of the network, which is on this machine's CPU only."""
    machine = opened.manifest.machine
    if in_this_process(placement):
        refuse_other_machine(machine, local_placement(None).target)
        return
    where = f"the device {placement.target.model}"
    refuse_other_machine(machine, placement.target, where)
    if opened.islands:
        raise TargetError(
            f"{opened.islands[0]} It is not on {where}.",
            hint="Run `tilewright optimize` for the device, without --libraries.",
        )


def _refuse_other_versions(manifest: Manifest) -> None:
    for name in ("apache-tvm", "apache-tvm-ffi"):
        made, here = manifest.versions[name], version(name)
        if made != here:
            raise TargetError(
                f"compiled with {name} {made}, installed is {here}",
                hint=f"pip install {name}=={made}, or run `tilewright optimize` again.",
            )

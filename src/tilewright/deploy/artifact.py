"""Running what `optimize` shipped: loaded into this process, or on the device it was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core import arguments, records, targets
from tilewright.core.errors import (
    DamagedArtifact,
    InputError,
    TargetError,
    UsageError,
    close_matches,
    last_line,
)
from tilewright.deploy.manifest import Machine, Manifest, Port
from tilewright.deploy.opening import OpenedArtifact, open_artifact
from tilewright.graph.inputs import IndexRange
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.targeting import open_networks
from tilewright.report import formats, shown, tables

_NAME = "network"


class Artifact:
    """A compiled network, ready to run in this process.

    Call it with arrays in the order of `inputs`, or by the names of the ONNX file. With one output
    it returns the array, with several a dictionary by name. `manifest` is what `optimize` wrote,
    `threads` how many a call uses, `folder` where the files are. Any thread may call it.
    """

    def __init__(self, opened: OpenedArtifact, threads: int | None) -> None:
        from tilewright.compiler.execute import Caller, LoadedNetwork

        manifest, folder = opened.manifest, opened.folder
        self.manifest: Mapping[str, Any] = manifest.content
        self.inputs = tuple(port.name for port in manifest.inputs)
        self.outputs = tuple(port.name for port in manifest.outputs)
        self._opened = opened
        placement = local_placement(threads)
        self.threads = placement.resources.threads
        self.folder = folder
        self._call = Caller(placement.resources.threads, placement.binding.cpus)
        self._network = self._call(lambda: LoadedNetwork.open(folder, manifest.constants))
        if self._network.input_count != len(self.inputs):
            raise DamagedArtifact(folder, "model.so has another number of inputs")

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<compiled network {self._opened.manifest.model!r}: {facts}>"

    def _repr_html_(self) -> str:
        facts = [(name, value, value) for name, value in self._facts().items()]
        return formats.notebook_fragment([tables.facts_table(self._opened.manifest.model, facts)])

    def _facts(self) -> dict[str, str]:
        """What it takes and gives, how fast it was, where it is and what it was made from."""
        manifest = self._opened.manifest
        found = {
            "inputs": ", ".join(f"{port.name} {_typed(port)}" for port in manifest.inputs),
            "outputs": ", ".join(f"{port.name} {_typed(port)}" for port in manifest.outputs),
        }
        if manifest.result.get("latency_s"):
            found["latency"] = f"{shown.seconds(manifest.result['latency_s'])} when it was made"
        found |= {"threads": str(self.threads), "folder": str(self.folder)}
        return found | {"made from": manifest.source.given or manifest.source.model}

    def __call__(self, *arrays: Array, **named: Array) -> Array | dict[str, Array]:
        """Run once. Raises UsageError for a wrong name, number, shape or type of input, InputError
        for an index out of range."""
        results = self.run(self._by_name(arrays, named))
        return results[self.outputs[0]] if len(self.outputs) == 1 else results

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on inputs by name; returns outputs by name. Raises as a call does."""
        ordered = _ordered(self._opened.manifest.inputs, arguments.named_of(inputs, "inputs"))
        try:
            results = self._call(lambda: self._network(ordered))
        except (RuntimeError, ValueError, TypeError) as error:
            raise DamagedArtifact(self._opened.folder, last_line(error)) from error
        return _named_outputs(self._opened, results)

    def _by_name(self, arrays: tuple[Array, ...], named: Mapping[str, Array]) -> dict[str, Array]:
        if len(arrays) > len(self.inputs):
            raise UsageError(
                f"{len(arrays)} arrays given for {len(self.inputs)} inputs",
                hint="Its inputs: " + ", ".join(map(repr, self.inputs)),
            )
        in_order = dict(zip(self.inputs, arrays, strict=False))
        twice = [name for name in in_order if name in named]
        if twice:
            raise UsageError(f"input {twice[0]!r} is given twice: in order and by its name")
        return {**in_order, **named}


def load(path: arguments.Text, *, threads: int | None = None, verify: bool = True) -> Artifact:
    """Load a compiled network from its folder.

    `threads` defaults to the physical cores allotted to this process; `verify` has the content of
    every file checked by its hash. Raises ModelError when the folder is no artifact or a file is
    damaged, TargetError when this CPU lacks an instruction set it was compiled for, or another TVM
    is installed.
    """
    count = None if threads is None else arguments.count_of(threads, "threads", 1)
    opened = open_artifact(arguments.path_of(path, "path"), verify=verify)
    refuse_other_machine(opened.manifest.machine, local_placement(None).target)
    _refuse_other_versions(opened.manifest)
    return Artifact(opened, count)


def run_on(
    folder: Path, inputs: Mapping[str, Array], placement: records.Placement, *, verify: bool = True
) -> dict[str, Array]:
    """The outputs of one run by name: in this process where the device is this machine, else there.

    Raises as `load` and its calls do, TargetError for a device that is lost.
    """
    if access_to(placement.device).here:
        return load(folder, threads=placement.resources.threads, verify=verify).run(inputs)
    opened = open_artifact(folder, verify=verify)
    manifest = opened.manifest
    refuse_elsewhere(manifest.machine, placement)
    ordered = _ordered(manifest.inputs, inputs)
    with open_networks(placement) as networks:
        networks.load(_NAME, opened.folder, manifest.constants)
        results = networks.run(_NAME, ordered)
    return _named_outputs(opened, results)


def _named_outputs(opened: OpenedArtifact, results: Sequence[Array]) -> dict[str, Array]:
    """The outputs by name. Raises ModelError when they are others than the manifest says."""
    ports = opened.manifest.outputs
    found = [(array.shape, str(array.dtype)) for array in results]
    if found != [(port.shape, port.dtype) for port in ports]:
        raise DamagedArtifact(opened.folder, "model.so gave other outputs")
    return {port.name: array for port, array in zip(ports, results, strict=True)}


def refuse_other_machine(
    machine: Machine, target: targets.Target, where: str = "this machine"
) -> None:
    """Raise TargetError where what was compiled for a machine does not run on a processor."""
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
        raise TargetError(f"compiled for {machine.model}; {lacks} {', '.join(missing)}", hint=hint)


def refuse_elsewhere(machine: Machine, placement: records.Placement) -> None:
    """The same for a device that is not this machine, under its own name."""
    if not access_to(placement.device).here:
        refuse_other_machine(machine, placement.target, f"the device {placement.target.model}")


def _refuse_other_versions(manifest: Manifest) -> None:
    for name in ("apache-tvm", "apache-tvm-ffi"):
        made, here = manifest.versions[name], version(name)
        if made != here:
            raise TargetError(
                f"compiled with {name} {made}, installed is {here}",
                hint=f"pip install {name}=={made}, or run `tilewright optimize` again.",
            )


def _ordered(ports: Sequence[Port], inputs: Mapping[str, Array]) -> list[Array]:
    """Arrays by name in the order of a network's inputs. Raises UsageError for a wrong name,
    number, shape or type, InputError for an index out of range."""
    _require_names(ports, inputs)
    return [_checked(port, inputs[port.name]) for port in ports]


def _require_names(ports: Sequence[Port], inputs: Mapping[str, Array]) -> None:
    """Raise UsageError that names the first unknown input and the first that is missing."""
    known = [port.name for port in ports]
    unknown = [name for name in inputs if name not in known]
    missing = [port for port in ports if port.name not in inputs]
    faults = [f"no input is called {name!r}" for name in unknown[:1]]
    faults += [f"input {port.name!r} is missing" for port in missing[:1]]
    hints = [close_matches(name, known) for name in unknown[:1]]
    hints += [f"{port.name!r} is {_typed(port)}." for port in missing[:1]]
    if faults:
        raise UsageError(", and ".join(faults), hint=" ".join(hints))


def _typed(port: Port) -> str:
    """What an input must be, `float32[1, 3]` say."""
    return f"{port.dtype}{list(port.shape)}"


def _checked(port: Port, given: Array) -> Array:
    """The array for an input; raises UsageError when it is of another type, InputError for an index
    out of range."""
    wanted = _typed(port)
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        first = str(error).strip().splitlines() or ["it cannot be converted"]
        raise UsageError(
            f"input {port.name!r} is no array: {first[0]}", hint=f"It is {wanted}."
        ) from error
    if array.shape != port.shape or str(array.dtype) != port.dtype:
        raise UsageError(
            f"input {port.name!r} is {array.dtype}{list(array.shape)}, "
            f"the network was compiled for {wanted}"
        )
    require_valid_indices(port.name, array, port.ranges)
    return array


def require_valid_indices(name: str, array: Array, ranges: Sequence[IndexRange]) -> None:
    """Raise InputError, naming the value and where it is, when one is outside its range."""
    if not ranges or not array.size:
        return
    lowest = np.array([item.lowest for item in ranges])
    highest = np.array([item.highest for item in ranges])
    columns: Any = array.reshape(-1, len(ranges))
    if np.all(columns.min(axis=0) >= lowest) and np.all(columns.max(axis=0) <= highest):
        return
    row, column = np.argwhere((columns < lowest) | (columns > highest))[0]
    place = np.unravel_index(int(row) * len(ranges) + int(column), array.shape)
    raise InputError(
        f"input {name!r} is {columns[row, column]} at {[int(i) for i in place]}; "
        f"the network uses its values as indices, which must be {ranges[column]} there",
        hint="Negative indices count from the end.",
    )

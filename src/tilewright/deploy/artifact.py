"""Running what `optimize` shipped: loaded into this process, or on the device it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewright.core import arguments, records, targets
from tilewright.core.errors import DamagedArtifact, TargetError
from tilewright.core.events import EventSink, Note, discard
from tilewright.deploy.manifest import Machine, Manifest
from tilewright.deploy.network_calls import CallableNetwork, named_outputs, ordered_inputs
from tilewright.deploy.opening import OpenedArtifact, open_artifact
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.targeting import open_networks
from tilewright.report import shown

_NAME = "network"


class Artifact(CallableNetwork):
    """A compiled network from its folder, ready to run in this process.

    Call it with arrays in the order of `inputs`, or by the names of the ONNX file. With one output
    it returns the array, with several a dictionary by name. `manifest` is what `optimize` wrote,
    `threads` how many a call uses, `folder` where the files are. Any thread may call it. `islands`
    says of each part that ONNX Runtime computes what, its share of the time, and why.
    """

    def __init__(self, opened: OpenedArtifact, threads: int | None) -> None:
        from tilewright.compiler.execute import LoadedNetwork

        manifest, folder = opened.manifest, opened.folder
        self.manifest: Mapping[str, Any] = manifest.content
        self._opened = opened
        self.folder = folder
        self.islands = opened.islands
        ports = manifest.inputs, manifest.outputs
        opening = partial(LoadedNetwork.open, folder, manifest.constants)
        super().__init__(ports, local_placement(threads), opening)
        if self._network.input_count != len(self.inputs):
            raise self._broken("model.so has another number of inputs")

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
    if access_to(placement.device).here:
        network = load(folder, threads=placement.resources.threads, verify=verify)
        for sentence in network.islands:
            events(Note(message=sentence))
        return network.run(inputs)
    opened = open_artifact(folder, verify=verify)
    manifest = opened.manifest
    refuse_elsewhere(manifest.machine, placement)
    ordered = ordered_inputs(manifest.inputs, inputs)
    with open_networks(placement) as networks:
        networks.load(_NAME, opened.folder, manifest.constants)
        results = networks.run(_NAME, ordered)
    return named_outputs(manifest.outputs, results, partial(DamagedArtifact, opened.folder))


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

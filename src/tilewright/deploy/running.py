"""Running what `optimize` shipped once, on the device that it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.core.errors import DamagedArtifact
from tilewright.core.records import Placement
from tilewright.deploy.artifact import load, ordered_inputs, refuse_elsewhere
from tilewright.deploy.opening import open_artifact
from tilewright.graph.network import Array
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.measurers import open_networks

_NAME = "network"


def run_on(
    folder: Path, inputs: Mapping[str, Array], placement: Placement, *, verify: bool = True
) -> dict[str, Array]:
    """The outputs of one run by name: in this process where the device is this machine, else there.

    Raises as `deploy.artifact.load` and its calls do, TargetError for a device that is lost.
    """
    if access_to(placement.device).here:
        return load(folder, threads=placement.resources.threads, verify=verify).run(inputs)
    opened = open_artifact(folder, verify=verify)
    manifest = opened.manifest
    refuse_elsewhere(manifest.machine, placement)
    ordered = ordered_inputs(manifest.inputs, inputs)
    with open_networks(placement) as networks:
        networks.load(_NAME, opened.folder, manifest.constants)
        results = networks.run(_NAME, ordered)
    found = [(array.shape, str(array.dtype)) for array in results]
    if found != [(port.shape, port.dtype) for port in manifest.outputs]:
        raise DamagedArtifact(opened.folder, "model.so gave other outputs")
    return {port.name: array for port, array in zip(manifest.outputs, results, strict=True)}

"""Noise of rounding as ONNX Runtime shows it, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.noise import RoundingNoise
from tilewright.core.processes import Child
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array
from tilewright.hardware.device import is_local, local_placement
from tilewright.kernels.base import HALF
from tilewright.kernels.half_noise import own_rounders, rounded_factor, storable
from tilewright.measure.kernels import WORKER

_TIMEOUT_S = 900.0


def measured_noise(
    network: FusedNetwork, placement: Placement, inputs: Sequence[Mapping[str, Array]]
) -> RoundingNoise:
    """What comes of every tensor of a network that may be stored in halves, of every call whose
    products may be of them, and of its algorithms that round in their own way, on these inputs;
    none needs a label."""
    factors = {call.name: rounded_factor(call.workload, placement) for call in network.calls}
    known = {name: place for name, place in factors.items() if place is not None}
    here = placement if is_local(placement.device) else local_placement()
    threads, cpus = here.resources.threads, here.binding.cpus
    with Child(WORKER, cpus=cpus) as child:
        child.request(("prepare", threads, cpus), _TIMEOUT_S)
        algorithms = {c.name: own_rounders(c.workload, placement) for c in network.calls}
        asked = ("noise", network, list(inputs), storable(network), known, algorithms, HALF)
        return child.request(asked, _TIMEOUT_S)

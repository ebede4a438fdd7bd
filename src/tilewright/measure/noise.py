"""Noise of rounding, and ranges of numbers, as ONNX Runtime shows it, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.core.noise import RoundingNoise
from tilewright.core.processes import Child
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array
from tilewright.hardware.device import is_local, local_placement
from tilewright.kernels.half_noise import own_rounders, rounded_factor, storable
from tilewright.kernels.halves import half_type
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
    algorithms = {c.name: own_rounders(c.workload, placement) for c in network.calls}
    half = half_type(placement)
    asked = ("noise", network, list(inputs), storable(network), known, algorithms, half)
    return _answered(placement, asked)


def measured_ranges(
    network: FusedNetwork, placement: Placement, inputs: Sequence[Mapping[str, Array]]
) -> dict[str, tuple[float, float]]:
    """Of every tensor in single precision, on these inputs, its largest number and what rounding to
    the half type of a placement adds to it; see `value_ranges`."""
    return _answered(placement, ("ranges", network, list(inputs), half_type(placement)))


def _answered(placement: Placement, asked: tuple[Any, ...]) -> Any:
    """The answer of a process of its own, on the CPUs of a placement where it is here."""
    here = placement if is_local(placement.device) else local_placement()
    threads, cpus = here.resources.threads, here.binding.cpus
    with Child(WORKER, cpus=cpus) as child:
        child.request(("prepare", threads, cpus), _TIMEOUT_S)
        return child.request(asked, _TIMEOUT_S)

"""Noise of rounding, and ranges of numbers, as ONNX Runtime shows it, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.core.noise import FinerCauses, RoundingNoise
from tilewright.core.processes import Child
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array
from tilewright.hardware.device import is_local, local_placement
from tilewright.kernels.base import FLOAT16
from tilewright.kernels.half_noise import (
    adder,
    finer_rounders,
    own_rounders,
    rounded_factor,
    storable,
)
from tilewright.kernels.halves import half_types
from tilewright.measure.kernels import WORKER

_TIMEOUT_S = 900.0


def measured_noise(
    network: FusedNetwork, placement: Placement, inputs: Sequence[Mapping[str, Array]]
) -> RoundingNoise:
    """What comes of every tensor of a network that may be stored in halves, of every call whose
    products may be of them, and of its algorithms that round in their own way, on these inputs;
    none needs a label. Where there is a second half type, the noise in that is with it."""
    half, *finer = half_types(placement)
    algorithms = {c.name: own_rounders(c.workload, placement, half) for c in network.calls}
    factors = _factors(network, placement, (half, *finer))
    asked = ("noise", network, list(inputs), storable(network), factors, algorithms, half)
    noise: RoundingNoise = _answered(placement, asked)
    for other in finer:
        types, calls = (half, other), network.calls
        adders = {c.name: adder(c.workload, placement, other) for c in calls}
        alike = {c.name: finer_rounders(c.workload, placement, types) for c in calls}
        causes = FinerCauses(
            types=types,
            factors=_factors(network, placement, (other,)),
            adders={name: found for name, found in adders.items() if found},
            alike={name: found for name, found in alike.items() if found},
        )
        asked = ("finer noise", network, list(inputs), noise, causes)
        noise = replace(noise, finer={other: _answered(placement, asked)})
    return noise


def _factors(network: FusedNetwork, placement: Placement, halves: Sequence[str]) -> dict[str, int]:
    """The place of the argument of each call that is rounded to one of some half types."""
    found = [
        (call.name, rounded_factor(call.workload, placement, half))
        for half in halves
        for call in network.calls
    ]
    return {name: place for name, place in found if place is not None}


def measured_ranges(
    network: FusedNetwork,
    placement: Placement,
    inputs: Sequence[Mapping[str, Array]],
    half: str = FLOAT16,
) -> dict[str, tuple[float, float]]:
    """Of every tensor in single precision, on these inputs, its largest number and what rounding to
    a half type adds to it; see `value_ranges`."""
    return _answered(placement, ("ranges", network, list(inputs), half))


def _answered(placement: Placement, asked: tuple[Any, ...]) -> Any:
    """The answer of a process of its own, on the CPUs of a placement where it is here."""
    here = placement if is_local(placement.device) else local_placement()
    threads, cpus = here.resources.threads, here.binding.cpus
    with Child(WORKER, cpus=cpus) as child:
        child.request(("prepare", threads, cpus), _TIMEOUT_S)
        return child.request(asked, _TIMEOUT_S)

"""What a network in single precision would take in bfloat16, by estimates, before anybody asks for
it.

    conv 1.2 ms → 0.6 ms    softmax 0.1 ms → 0.1 ms    dense 0.7 ms → 0.4 ms    2.0 / 1.1 = 1.8
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilewright.core.forms import PLAIN, Form, stored_in
from tilewright.core.mixtures import CoarserEstimate
from tilewright.core.records import Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, MIXED
from tilewright.kernels.forms import choose_forms
from tilewright.kernels.half_noise import storable
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.registry import applicable, precise_enough, takes
from tilewright.kernels.spaces import default_candidate
from tilewright.models.loaded import ModelOptions, PreparedNetwork

_TASKS = 48
"""So many tasks are looked at, those that take longest, which cost some milliseconds each; the
others count as gaining as much."""
_WORTH_TELLING = 1.05

_Ports = tuple[Form, ...]


def coarser_estimate(
    network: PreparedNetwork, placement: Placement, latency_s: float
) -> CoarserEstimate | None:
    """What the choice of a type for each tensor would make of a network that takes `latency_s` in
    single precision: each call in halves where that is estimated to be faster, in default settings.
    None where the processor has no unit for products of halves, where the network is in another
    precision, and where nothing to speak of is gained. Nothing is measured."""
    if network.precision != ModelOptions().precision or not half_lanes(placement.target):
        return None
    target, resources = placement.target, placement.resources
    halves = replace(placement, precision=HALF)
    forms = choose_forms(network.fused, target, resources, HALF)
    singles = {*storable(network.fused)} - {*network.graph.inputs, *network.graph.outputs}
    counted: Counter[tuple[Workload, _Ports, _Ports]] = Counter()
    for call in network.fused.calls:
        tensors = (*call.inputs, call.output)
        own = tuple(network.forms.get(name, PLAIN) for name in tensors)
        coarse = (
            stored_in(forms.get(name, PLAIN), HALF if name in singles else None) for name in tensors
        )
        counted[call.workload, own, tuple(coarse)] += 1
    times = {
        key: count * default_candidate(key[0], key[1], placement)[1]
        for key, count in counted.items()
    }
    longest = sorted(times, key=lambda key: -times[key])[:_TASKS]
    before_s = after_s = sum(times[key] for key in longest)
    for key in longest:
        workload, _, coarse = key
        able = (
            precise_enough(spec, workload, coarse, halves) and takes(spec, workload, coarse)
            for spec in applicable(workload, target, resources)
        )
        if any(able):
            found_s = counted[key] * default_candidate(workload, coarse, halves)[1]
            after_s -= max(0.0, times[key] - found_s)
    if before_s < _WORTH_TELLING * after_s or after_s <= 0.0:
        return None
    speedup = before_s / after_s
    return CoarserEstimate(
        precision=MIXED, types=(HALF,), speedup=speedup, latency_s=latency_s / speedup
    )

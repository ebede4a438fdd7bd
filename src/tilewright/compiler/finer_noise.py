"""The noise of a finer type, from what rounding to a coarser one was seen to make.

    t → [conv] → u → …      noise of t in float16 = noise of t in bfloat16
                                × what rounding t to float16 / to bfloat16 takes away from t
                            of additions in the conv = noise of u in bfloat16
                                × what they add to u / what rounding u to bfloat16 takes away

Both are roundings at one place, each independent of others, so that what follows hands on the same
part of their power. So a second type takes one run through the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from tilewright.compiler.rounding_noise import Runner
from tilewright.core.noise import Powers, RoundingNoise
from tilewright.graph.arrays import rounded_to
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import Array
from tilewright.kernels.half_noise import AddsInHalves
from tilewright.kernels.registry import implementation


def finer_noise(
    network: FusedNetwork,
    inputs: Sequence[Mapping[str, Array]],
    noise: RoundingNoise,
    types: tuple[str, str],
    factors: Mapping[str, int],
    adders: Mapping[str, str],
) -> RoundingNoise:
    """The noise of the second of two `types` from that of the first, on the same inputs.

    `factors` has the place of the argument that each call rounds, `adders` the implementation that
    adds up its products in the second type, both by the calls' names.
    """
    runner, graph = Runner(network.graph.types), network.graph
    multiplied = [call for call in network.calls if call.name in factors]
    rounded = [call.inputs[factors[call.name]] for call in multiplied]
    roundings = {name: (0.0, 0.0) for name in (*noise.tensors, *rounded)}
    added: dict[str, float] = dict.fromkeys(adders, 0.0)
    for given in inputs:
        values = dict(graph.constants) | {name: given[name] for name in graph.inputs}
        for call in network.calls:
            values[call.output] = runner.run(call, values)
            if call.name in adders:
                errors = _additions(call, values, adders[call.name])
                added[call.name] += _power(
                    runner.disturbed(call, values, errors) - values[call.output]
                )
        for name, (first, second) in roundings.items():
            lost = [_power(values[name] - rounded_to(values[name], each)) for each in types]
            roundings[name] = (first + lost[0], second + lost[1])

    def handed_on(powers: Powers, part: float, whole: float) -> Powers:
        """What is left of a part where it is known of the whole."""
        if part <= 0.0:
            return noise.total(())
        return noise.total([(powers, part / whole)]) if whole > 0.0 else (inf,) * len(powers)

    def of_call(call: TaskCall) -> Powers:
        coarse, fine = roundings[call.inputs[factors[call.name]]]
        own = handed_on(noise.calls[call.name], fine, coarse)
        extra = added.get(call.name, 0.0)
        if call.output in noise.tensors:
            more = handed_on(noise.tensors[call.output], extra, roundings[call.output][0])
        else:
            more = tuple(extra * (call.output == output) for output in noise.outputs)
        return noise.total([(own, 1.0), (more, 1.0)])

    return replace(
        noise,
        tensors={
            name: handed_on(powers, roundings[name][1], roundings[name][0])
            for name, powers in noise.tensors.items()
        },
        calls={call.name: of_call(call) for call in multiplied},
        algorithms={},
    )


def _additions(call: TaskCall, values: Mapping[str, Array], name: str) -> Array:
    """Errors as additions in halves make them in what the anchor of a call computes."""
    workload, spec = call.workload, implementation(name)
    index = workload.anchor_index
    assert workload.anchor is not None and index is not None and isinstance(spec, AddsInHalves)
    operands = [
        values[call.inputs[i]].reshape(workload.arguments[i].type.shape)
        for i in workload.anchor.inputs
    ]
    kind = workload.types[len(workload.arguments) + index]
    drawn = np.random.default_rng(0).standard_normal(kind.shape, np.float32)
    deviations = spec.addition_deviations(workload, operands)
    return (drawn * deviations.astype(np.float32)).astype(np.float32)


def _power(errors: Array) -> float:
    finite = errors[np.isfinite(errors)].astype(np.float64)
    return float(np.sum(np.square(finite)))

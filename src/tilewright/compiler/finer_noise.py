"""The noise of a finer type, from what rounding to a coarser one was seen to make.

    t → [conv] → u → …      noise of t in float16 = noise of t in bfloat16
                                × what rounding t to float16 / to bfloat16 takes away from t
                            of additions in the conv = noise of u in bfloat16
                                × what they add to u / what rounding u to bfloat16 takes away
                            of an algorithm          = that of the same one in bfloat16
                                × what it adds to u in float16 / in bfloat16

All are roundings at one place, each independent of others, so that what follows hands on the same
part of their power. So a second type takes one run through the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from tilewright.compiler.rounding_noise import Runner, own_errors
from tilewright.core.noise import FinerCauses, Powers, RoundingNoise
from tilewright.graph.arrays import rounded_to
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import Array
from tilewright.kernels.half_noise import AddsInHalves
from tilewright.kernels.registry import implementation

Pair = tuple[float, float]
"""What is lost by the first type and by the second one."""


@dataclass(frozen=True, kw_only=True)
class _Lost:
    """The powers of errors: `roundings` of tensors, `added` to calls' results by additions in the
    second type, and `own` by algorithms that round in their own way."""

    roundings: dict[str, Pair]
    added: dict[str, float]
    own: dict[tuple[str, tuple[str, str]], Pair]


def finer_noise(
    network: FusedNetwork,
    inputs: Sequence[Mapping[str, Array]],
    noise: RoundingNoise,
    causes: FinerCauses,
) -> RoundingNoise:
    """The noise of the finer of two types from that of the coarser one, on the same inputs."""
    factors = causes.factors
    multiplied = [call for call in network.calls if call.name in factors]
    rounded = [call.inputs[factors[call.name]] for call in multiplied]
    outputs = {call.name: call.output for call in network.calls}
    lost = _lost(network, inputs, causes, (*noise.tensors, *rounded))

    def handed_on(powers: Powers, part: float, whole: float) -> Powers:
        """What is left of a part where it is known of the whole."""
        if part <= 0.0:
            return noise.total(())
        return noise.total([(powers, part / whole)]) if whole > 0.0 else (inf,) * len(powers)

    def from_result(output: str, power: float) -> Powers:
        """What is left of errors in the result of a call."""
        if output in noise.tensors:
            return handed_on(noise.tensors[output], power, lost.roundings[output][0])
        return tuple(power * (output == other) for other in noise.outputs)

    def of_call(call: TaskCall) -> Powers:
        coarse, fine = lost.roundings[call.inputs[factors[call.name]]]
        rounding = handed_on(noise.calls[call.name], fine, coarse)
        more = from_result(call.output, lost.added.get(call.name, 0.0))
        return noise.total([(rounding, 1.0), (more, 1.0)])

    def of_algorithm(call: str, pair: tuple[str, str]) -> Powers:
        coarse, fine = lost.own[call, pair]
        known = noise.algorithms.get((call, pair[0]))
        return handed_on(known, fine, coarse) if known else from_result(outputs[call], fine)

    return replace(
        noise,
        tensors={
            name: handed_on(powers, *reversed(lost.roundings[name]))
            for name, powers in noise.tensors.items()
        },
        calls={call.name: of_call(call) for call in multiplied},
        algorithms={(call, pair[1]): of_algorithm(call, pair) for call, pair in lost.own},
    )


def _lost(
    network: FusedNetwork,
    inputs: Sequence[Mapping[str, Array]],
    causes: FinerCauses,
    tensors: Sequence[str],
) -> _Lost:
    """What one run through the network on each of the inputs shows."""
    runner, graph = Runner(network.graph.types), network.graph
    adders, alike = causes.adders, causes.alike
    lost = _Lost(
        roundings=dict.fromkeys(tensors, (0.0, 0.0)),
        added=dict.fromkeys(adders, 0.0),
        own={(call, pair): (0.0, 0.0) for call, pairs in alike.items() for pair in pairs},
    )
    for given in inputs:
        values = dict(graph.constants) | {name: given[name] for name in graph.inputs}
        for call in network.calls:
            values[call.output] = runner.run(call, values)

            def behind(
                errors: Array, call: TaskCall = call, values: dict[str, Array] = values
            ) -> float:
                """The power in the result of a call of errors in what its anchor computes."""
                return _power(runner.disturbed(call, values, errors) - values[call.output])

            if call.name in adders:
                lost.added[call.name] += behind(_additions(call, values, adders[call.name]))
            for pair in alike.get(call.name, ()):
                made = (
                    behind(own_errors(call, values, name, dtype)) if name else 0.0
                    for name, dtype in zip(pair, causes.types, strict=True)
                )
                lost.own[call.name, pair] = _sums(lost.own[call.name, pair], made)
        for name, known in lost.roundings.items():
            each = (
                _power(values[name] - rounded_to(values[name], dtype)) for dtype in causes.types
            )
            lost.roundings[name] = _sums(known, each)
    return lost


def _sums(known: Pair, more: Iterable[float]) -> Pair:
    first, second = map(sum, zip(known, more, strict=True))
    return first, second


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

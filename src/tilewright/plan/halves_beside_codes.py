"""Halves in a network that is partly on codes: the noise that they make in the network in single
precision, by the names of the tensors and calls of the one on codes.

    single:     … → t → conv → relu → u                         noise of t, of conv and of u
    on codes:   … → t/codes → t/numbers → conv → relu → u/codes    that of t is t/numbers'

Rounding to codes adds noise that does not depend on what it rounds, so that noise of halves passes
through it as through nothing. In the network on codes it cannot be measured: there it makes single
codes their neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tilewright.core.noise import Powers, RoundingNoise
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.kernels.base import HALF
from tilewright.kernels.half_noise import own_rounders, rounded_factor, storable

_COPY = "/duplicated"
"""What ONNX Runtime puts behind the name of a tensor that it makes once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedNames:
    """Names of an ONNX file on codes: `numbers` has the tensor of each that holds what its codes
    stand for, `writers` the node that writes each tensor of the network in single precision."""

    numbers: Mapping[str, str]
    writers: Mapping[str, str]

    def of(self, tensor: str) -> str:
        """The tensor of the network in single precision that another one holds the numbers of,
        of which ONNX Runtime may have made one for each reader; its own name for others."""
        return self.numbers.get(tensor.partition(_COPY)[0], tensor)


def carried_over(
    noise: RoundingNoise,
    single: FusedNetwork,
    codes: FusedNetwork,
    names: CodedNames,
    placement: Placement,
    half: str = HALF,
) -> RoundingNoise:
    """The `noise` of a half type, and of finer ones, in the network `single` as that of the network
    `codes`. Where a tensor is inside a call of the network in single precision, what that call
    writes goes for it."""
    makers = {node: call for call in single.calls for node in call.nodes}
    tensors: dict[str, Powers] = {}
    for name in storable(codes):
        its = names.of(name)
        maker = makers.get(names.writers.get(its, ""))
        found = noise.tensors.get(its) or (maker and noise.tensors.get(maker.output))
        if found:
            tensors[name] = found
    calls: dict[str, Powers] = {}
    algorithms: dict[tuple[str, str], Powers] = {}
    for call in codes.calls:
        its = makers.get(call.name)
        if its is None or rounded_factor(call.workload, placement, half) is None:
            continue
        if its.name in noise.calls:
            calls[call.name] = noise.calls[its.name]
        for name in own_rounders(call.workload, placement, half):
            if (its.name, name) in noise.algorithms:
                algorithms[call.name, name] = noise.algorithms[its.name, name]
    finer = {
        other: carried_over(found, single, codes, names, placement, other)
        for other, found in noise.finer.items()
    }
    return replace(noise, tensors=tensors, calls=calls, algorithms=algorithms, finer=finer)


def kept_beside(
    codes: FusedNetwork, kept: Collection[str], nodes: Collection[str], names: CodedNames
) -> frozenset[str]:
    """The tensors of the network on codes that stay in single precision: those that are `kept` in
    the other one, and all around calls that have some of these `nodes`."""
    around = {
        tensor
        for call in codes.calls
        if not {call.name, *call.nodes}.isdisjoint(nodes)
        for tensor in (*call.inputs, call.output)
    }
    own = {tensor for tensor in codes.graph.types if names.of(tensor) in kept}
    return frozenset((own | around) - codes.graph.constants.keys())

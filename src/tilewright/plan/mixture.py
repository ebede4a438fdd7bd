"""Which tensors may be stored in halves, and what noise that and products of halves make, as parts
of what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

from tilewright.core.arguments import kept_names
from tilewright.core.errors import UsageError, close_matches, quoted
from tilewright.core.grouping import grouped
from tilewright.core.noise import Powers, RoundingNoise, largest_share
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.kernels.base import HALF, HALVES
from tilewright.kernels.dense_int8_weights import SPEC as WEIGHTS
from tilewright.kernels.half_noise import multiplied_half, rounds_anew
from tilewright.kernels.ports import Ports, multiplied
from tilewright.kernels.registry import implementations

AIM, AIM_AGAIN = 0.8, 0.95
"""The part of the allowed noise that is aimed at by what was measured cause by cause; by what a
compiled network showed."""

_FEW_PORTS = 3


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """What a network's noise is made of, and the powers that are `allowed` in its outputs.

    `kept` are names of tensors and calls that stay in single precision. `codes` is the noise of
    calls, by name, that nothing is chosen of: that of codes of eight bits. `scale` is the noise
    that a compiled network showed by what was predicted of it, None before there was one.
    """

    noise: RoundingNoise
    allowed: Powers
    kept: frozenset[str] = frozenset()
    codes: Mapping[str, Powers] = field(default_factory=dict[str, Powers])
    scale: float | None = None

    @property
    def budget(self) -> float:
        """The part of what is allowed that predicted noise may have beside that of codes, which was
        seen."""
        codes = self.share(self.codes)
        if self.scale is None:
            return AIM * max(0.0, 1.0 - codes)
        return max(0.0, AIM_AGAIN / self.scale - codes)

    def stores(self, tensor: str, half: str) -> bool:
        """Whether a tensor may be stored in a half type."""
        return tensor in self.noise.of(half).tensors and tensor not in self.kept

    def rounds(self, call: TaskCall, ports: Ports, given: Collection[str]) -> bool:
        """Whether a call that writes halves multiplies nothing but singles that the network is
        `given` and that may be stored in halves: a kernel may round them itself, without a copy."""
        read = multiplied(call.workload) if ports[-1].dtype is not None else ()
        named = ((call.inputs[place], ports[place].dtype) for place in read)
        return bool(read) and all(
            name in given and dtype is None and self.stores(name, HALF) for name, dtype in named
        )

    def codes_weights(self, call: TaskCall) -> bool:
        """Whether a call may read its weights on codes."""
        return (call.name, WEIGHTS.name) in self.noise.algorithms and call.output not in self.kept

    def powers_at(
        self, call: TaskCall, implementation: str, ports: Ports, given: Collection[str]
    ) -> Powers:
        """The noise that a call makes: by products of halves or weights on codes, by rounding its
        result, by rounding what the network is `given`, and singles that it multiplies as halves.
        An empty implementation computes nothing."""
        half = multiplied_half(implementations().get(implementation))
        noise = self.noise.of(half)
        own = noise.algorithms.get((call.name, implementation))
        if own is None and half:
            own = noise.calls.get(call.name)
        itself = multiplied(call.workload) if half else ()
        rounded: list[tuple[str, str | None]] = [
            (tensor, form.dtype or half)
            for place, (tensor, form) in enumerate(zip(call.inputs, ports, strict=False))
            if (form.dtype in HALVES and tensor in given)
            or (form.dtype is None and place in itself)
        ]
        if rounds_anew(call.workload, ports):
            rounded.append((call.output, ports[-1].dtype))
        causes = [own, *(self.noise.of(dtype).tensors.get(each) for each, dtype in rounded)]
        return noise.total((each, 1.0) for each in causes if each is not None)

    def share_at(
        self, call: TaskCall, implementation: str, ports: Ports, given: Collection[str]
    ) -> float:
        """The largest part of what is allowed that this takes in an output."""
        return largest_share(self.powers_at(call, implementation, ports, given), self.allowed)

    def quieter(
        self, call: TaskCall, fastest: Iterable[str], ports: Ports, given: Collection[str]
    ) -> list[str]:
        """Of the implementations for a call, the fastest first, those that make less noise than all
        before them: Winograd's from large tiles to small ones, say, then the direct one."""
        found, least = list[str](), inf
        for name in fastest:
            noise = self.share_at(call, name, ports, given)
            if not found or noise < least:
                found.append(name)
                least = noise
        return found

    def powers(
        self, network: FusedNetwork, chosen: Mapping[str, tuple[str, Ports]]
    ) -> dict[str, Powers]:
        """The noise of each call that makes some, by its name, that of codes included. `chosen` has
        the implementation and the forms of the ports of those that are computed."""
        none, found = self.noise.total(()), dict[str, Powers]()
        for call in (each for each in network.calls if each.name in chosen):
            own = self.powers_at(call, *chosen[call.name], network.graph.inputs)
            of_codes = self.codes.get(call.name, none)
            found[call.name] = self.noise.total([(own, 1.0), (of_codes, 1.0)])
        return {name: powers for name, powers in found.items() if any(powers)}

    def share(self, powers: Mapping[str, Powers]) -> float:
        """The largest part of what is allowed that the noise of calls together takes."""
        return largest_share(
            self.noise.total((each, 1.0) for each in powers.values()), self.allowed
        )


def some_ports(places: Sequence[int], result: int) -> list[frozenset[int]]:
    """Some of the ports of a call, of many either all, those that are read, or the result's."""
    if len(places) > _FEW_PORTS:
        read = frozenset(places) - {result}
        return list(dict.fromkeys([read, frozenset(places), frozenset(places) - read]))
    return [frozenset(c) for n in range(1, len(places) + 1) for c in combinations(places, n)]


def kept_single(
    network: FusedNetwork, wishes: str | Sequence[str], *, known: bool = False
) -> frozenset[str]:
    """The tensors that stay in single precision because people named them, `float32:NAME`, or
    nodes that read or write them. Raises UsageError for other types, and unless all names are
    `known` for unknown ones."""
    graph, kept = network.graph, set[str]()
    around = grouped(
        [
            (name, tensor)
            for call in network.calls
            for name in (call.name, *call.nodes)
            for tensor in (*call.inputs, call.output)
        ]
    )
    for name in kept_names(wishes):
        if not known and name not in around and name not in graph.types:
            raise UsageError(
                f"the network has no node or tensor {quoted(name)}",
                hint=close_matches(name, dict.fromkeys((*around, *graph.types))),
            )
        kept |= {name, *around.get(name, ())}
    return frozenset(tensor for tensor in kept - graph.constants.keys() if tensor in graph.types)

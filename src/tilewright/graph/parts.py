"""Networks that are computed in parts at several places: cut where tensors go from one to another.

    left: a, b, d   right: c, which reads a;   d reads b and c   →   left [a] [b] [d]   right [c]

A *part* is a run of calls at one place that needs nothing from elsewhere once it has begun: what it
reads of other places its first call waits for. A call whose result goes elsewhere ends its part, so
that nobody waits longer than for what they read. Each part is a network of its own, whose inputs
and outputs are tensors of the whole one under their own names, in plain form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilewright.core.errors import InternalError
from tilewright.graph.fuse import FusedNetwork, TaskCall

Place = tuple[str, tuple[int, ...]]
"""A device, and those of its cores that a call has."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Calls at one place. `calls` are the names of those that were placed there, `network` has
    besides them the calls that were placed nowhere and are needed here; `after` are the numbers of
    the parts whose results it reads."""

    place: Place
    calls: tuple[str, ...]
    network: FusedNetwork
    after: tuple[int, ...]

    @property
    def name(self) -> str:
        """What people call it: its first call and its last one."""
        ends = dict.fromkeys((self.calls[0], self.calls[-1]))
        return " … ".join(ends)


def cut(network: FusedNetwork, order: Sequence[tuple[str, Place]]) -> tuple[Part, ...]:
    """The parts of a network, in an order in which they can run: none reads what itself or a later
    one writes.

    `order` names calls and where each runs, none before one whose result it reads. A call that is
    not named is done wherever its result is read, once more at each place, of whole operands: those
    that only join tensors, slice them or give them another shape. Raises InternalError where no
    call is named.
    """
    if not order:
        raise InternalError("no call of a network was placed")
    return _Cutting(network=network, order=order).parts()


@dataclass(slots=True, kw_only=True)
class _Open:
    """A part that is made call by call; `foreign` are the tensors it reads of other places."""

    place: Place
    calls: list[TaskCall] = field(default_factory=list[TaskCall])
    foreign: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Cutting:
    network: FusedNetwork
    order: Sequence[tuple[str, Place]]

    @cached_property
    def _free(self) -> dict[str, TaskCall]:
        """The calls that were placed nowhere, by what they write."""
        named = {name for name, _ in self.order}
        return {call.output: call for call in self.network.calls if call.name not in named}

    @cached_property
    def _placed(self) -> list[tuple[TaskCall, Place]]:
        """Calls in order. Outputs of the network that a free call writes are written where the
        last of what they are made of is, behind everything else."""
        by_name = {call.name: call for call in self.network.calls}
        found = [(by_name[name], place) for name, place in self.order]
        number = {call.output: n for n, (call, _) in enumerate(found)}
        for tensor in dict.fromkeys(self.network.graph.outputs):
            if tensor in self._free:
                made_of = (number.get(each, 0) for each in self._reads(self._free[tensor])[0])
                found.append((self._free[tensor], found[max(made_of, default=0)][1]))
        return found

    def _reads(self, call: TaskCall) -> tuple[dict[str, None], dict[str, TaskCall]]:
        """The tensors that a call reads of placed calls and of the network's inputs, in order; and
        by their results the free calls that make its operands of them, first ones first."""
        tensors, along = dict[str, None](), dict[str, TaskCall]()
        for tensor in call.inputs:
            if tensor in self.network.graph.constants:
                continue
            if tensor not in self._free:
                tensors[tensor] = None
            elif tensor not in along:
                more, before = self._reads(self._free[tensor])
                tensors |= more
                along |= {**before, tensor: self._free[tensor]}
        return tensors, along

    def parts(self) -> tuple[Part, ...]:
        """All parts, by their first calls."""
        gathered, at = self._gathered(), self._at
        home = {call.output: n for n, each in enumerate(gathered) for call in each.calls}
        read = [{t for call in each.calls for t in self._reads(call)[0]} for each in gathered]
        wanted = set(self.network.graph.outputs)
        for number, tensors in enumerate(read):
            wanted |= {t for t in tensors if t in at and home[t] != number}
        return tuple(
            Part(
                place=each.place,
                calls=tuple(call.name for call in each.calls),
                network=self._network(each.calls, wanted),
                after=tuple(sorted({home[t] for t in read[n] if t in at} - {n})),
            )
            for n, each in enumerate(gathered)
        )

    @cached_property
    def _at(self) -> Mapping[str, Place]:
        """Where each result is."""
        return {call.output: place for call, place in self._placed}

    def _gathered(self) -> list[_Open]:
        sent = {t for call, place in self._placed for t in self._foreign(call, place)}
        found, open_at = list[_Open](), dict[Place, _Open]()
        for call, place in self._placed:
            foreign, part = self._foreign(call, place), open_at.get(place)
            if part is None or not foreign <= part.foreign:
                part = open_at[place] = _Open(place=place, foreign=foreign)
                found.append(part)
            part.calls.append(call)
            if call.output in sent:
                del open_at[place]
        return found

    def _foreign(self, call: TaskCall, place: Place) -> frozenset[str]:
        """What a call reads of other places."""
        at = self._at
        return frozenset(t for t in self._reads(call)[0] if at.get(t, place) != place)

    def _network(self, calls: Iterable[TaskCall], wanted: set[str]) -> FusedNetwork:
        inside, read = dict[str, TaskCall](), dict[str, None]()
        for call in calls:
            tensors, along = self._reads(call)
            read |= tensors
            inside |= along | {call.output: call}
        graph = self.network.graph
        used = {t for call in inside.values() for t in (*call.inputs, call.output)}
        cut_out = replace(
            graph,
            nodes=(),
            inputs=tuple(t for t in read if t not in inside),
            outputs=tuple(t for t in inside if t in wanted and self._is_own(t, calls)),
            types={name: kind for name, kind in graph.types.items() if name in used},
            constants={name: value for name, value in graph.constants.items() if name in used},
            examples={},
            fixed=frozenset(),
        )
        return FusedNetwork(graph=cut_out, calls=tuple(inside.values()))

    def _is_own(self, tensor: str, calls: Iterable[TaskCall]) -> bool:
        return any(call.output == tensor for call in calls)

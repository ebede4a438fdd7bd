"""Versions of kernels that were tuned while a partner ran (`tune --beside`), for planners.

    beside a stream   usual   46 µs alone   76 µs beside      loses 30 µs
                      other   50 µs         62 µs             loses 12 µs: moves 0.4 of the bytes

Planners tell what calls lose beside each other by the bytes that a kernel moves, to which the lost
time is in proportion (`cost.contention`). So what two versions lost beside the same partner is as
their bytes are, whatever the partner streams; the usual kernel's are counted. A count alone knows
nothing of tiles and orders: to it two settings of one algorithm are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.core.planning import PlanningMode
from tilewright.core.records import Candidate, Placement
from tilewright.kernels.spaces import too_inexact
from tilewright.measure.circumstances import is_beside
from tilewright.predict.kernel_features import Kernel
from tilewright.store.base import Store
from tilewright.store.known_candidates import allowed_outcomes, own, ranked

_LOSES = 0.05
"""Beside what slows the usual kernel down by less, nothing can be told of what versions lose."""
_WORTH = 0.95
"""The part of the usual kernel's time beside the partner that another one must stay below there:
the least of many times is mostly too low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quieter:
    """A kernel that took less beside a partner than the usual one, and the part of what that lost
    which it lost."""

    kernel: Kernel
    lost: float

    def told(self, mode: PlanningMode, usual: PlanningMode) -> PlanningMode:
        """Its mode with the bytes that follow from what was measured."""
        return replace(mode, moved_bytes=round(self.lost * usual.moved_bytes), moved_is="measured")


def tuned_beside(
    kernels: Iterable[Kernel], store: Store, placement: Placement, max_error: float | None = None
) -> dict[Kernel, Quieter]:
    """For usual kernels the version of their task, in the same forms, that was fastest beside the
    partner which slowed the usual one down most.

    There is none where that is the usual one, or hardly faster; where nothing was slowed down; and
    where one of the two was not timed alone, too.
    """
    usual = placement.device
    names = dict.fromkeys(each.class_key for each in store.devices())
    partners = [
        replace(placement, device=replace(usual, class_key=name))
        for name in names
        if is_beside(name, usual.class_key)
    ]
    if not partners:
        return {}
    known = _Known(store=store, max_error=max_error)
    found = ((kernel, _quieter(kernel, known, placement, partners)) for kernel in kernels)
    return {kernel: other for kernel, other in found if other is not None}


def modes_of(
    several: Sequence[Kernel], modes: Mapping[Kernel, PlanningMode], quieter: Quieter | None
) -> list[PlanningMode]:
    """The modes of several versions, the usual one first; that of the one that was tuned beside
    something with the bytes that follow from it."""
    usual = modes[several[0]]
    return [
        quieter.told(modes[one], usual) if quieter and one == quieter.kernel else modes[one]
        for one in several
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    store: Store
    max_error: float | None

    def times_s(self, usual: Kernel, place: Placement) -> dict[Candidate, float]:
        """Seconds of the versions of a kernel that were measured at a placement."""
        workload, candidate = usual
        out = too_inexact(workload, candidate.forms, place, self.max_error)
        return {
            each.candidate: each.latency_s
            for each in ranked(own(allowed_outcomes(workload, self.store, place)))
            if each.candidate.forms == candidate.forms and each.candidate.implementation not in out
        }


def _quieter(
    usual: Kernel, known: _Known, alone: Placement, partners: Sequence[Placement]
) -> Quieter | None:
    (workload, candidate), alone_s = usual, known.times_s(usual, alone)
    if candidate not in alone_s:
        return None
    found: list[tuple[float, Quieter]] = []
    for partner in partners:
        beside_s = known.times_s(usual, partner)
        lost_s = {each: s - alone_s[each] for each, s in beside_s.items() if each in alone_s}
        own_s = lost_s.get(candidate, 0.0)
        if own_s < _LOSES * alone_s[candidate]:
            continue
        best = min(lost_s, key=lambda each: beside_s[each])
        if beside_s[best] <= _WORTH * beside_s[candidate]:
            part = min(1.0, max(0.0, lost_s[best]) / own_s)
            found.append((own_s, Quieter(kernel=(workload, best), lost=part)))
    return max(found, key=lambda one: one[0])[1] if found else None

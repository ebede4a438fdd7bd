"""Several shapes of a network agree on how weights are packed, so that these are stored once.

    batch 1: conv2d_direct, weights 4x16x3x3x16x16
    batch 4: conv2d_direct, weights 2x16x3x3x16x32  →  4x16x3x3x16x16, where that costs little

The plan of a shape raced already. It races once more against one in which every call packs its
weights as an earlier shape does, with the best settings that do so. Where that is too slow, the
calls that lose most time per byte keep weights of their own. How slow is told by the calls that
changed, in their places: whole networks of equal kernels differ by more than sharing may cost.

    batch 16: conv2d_winograd, weights 36x32x512x16  →  conv2d_winograd2, 16x32x512x16, as batch 1

Later shapes may lose more by an earlier one's packing than that one would by theirs: in estimated
time, relative to the network, and in size. Then the earlier one races a plan that packs as they
would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.records import Candidate, Placement
from tilewright.deploy.racing import Race, timing_of
from tilewright.graph.plan import NetworkPlan, PlannedCall
from tilewright.graph.plan_result import PlanResult
from tilewright.kernels.plans import with_each
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import ranked_defaults, spaces
from tilewright.store.base import Store
from tilewright.store.known_candidates import known_outcomes, own, ranked

SHARED = "shared weights"
ALLOWED = 1.03
"""So many times as slow as the fastest plan may be what ships, for the weights to be shared."""
_AIM = 1.02
_TRIED = 4096
"""Settings that are looked at to find some that pack weights in a given way."""

Packing = tuple[str, tuple[tuple[int, tuple[int, ...]], ...]]
"""Implementation, and by argument the physical shape of each constant."""


@dataclass(frozen=True, slots=True)
class OtherShapes:
    """Plans of other shapes of a network: those that were made, and the default ones of those that
    will be."""

    earlier: Sequence[NetworkPlan] = ()
    later: Sequence[NetworkPlan] = ()


ALONE = OtherShapes()


def agree(race: Race, others: OtherShapes, store: Store, max_error: float) -> None:
    """Race the winner against plans that share weights with `others`; one of them goes to the
    front where it is nearly as fast."""
    best = race.winner
    change = Agreement(best.plan, others, race.placement, store, max_error).changes()
    if not change:
        return
    found = _raced(race, best, change, SHARED)
    if found is not None and _slower(found, best.plan, change, race) > _AIM:
        kept = _affordable(found, best.plan, change, race)
        if kept and kept != change:
            change = kept
            found = _raced(race, best, kept, f"some {SHARED}")
    if found is not None and _slower(found, best.plan, change, race) <= ALLOWED:
        race.finished = [found, *(each for each in race.finished if each is not found)]


def _raced(
    race: Race, best: PlanResult, change: Mapping[str, Candidate], name: str
) -> PlanResult | None:
    """The winner with some candidates changed, after a race; None where it gave wrong results or
    lost before."""
    plan = with_each(best.plan, change)
    kept = {call.name: best.call(call.name) for call in plan.calls if call.name not in change}
    race.challenge(PlanResult(name=name, plan=plan, calls=kept))
    return next((each for each in race.finished if each.name == name), None)


def _losses_s(
    found: PlanResult, before: PlanResult, change: Mapping[str, Candidate]
) -> dict[str, float | None]:
    """Time that each changed call loses in its place; None where it is unknown."""
    losses: dict[str, float | None] = dict.fromkeys(change)
    for name in change:
        own_s, now_s = before.call(name).in_place_s, found.call(name).in_place_s
        if own_s is not None and now_s is not None:
            losses[name] = now_s - own_s
    return losses


def _slower(
    found: PlanResult, own_plan: NetworkPlan, change: Mapping[str, Candidate], race: Race
) -> float:
    """How many times as slow as before a plan is with some calls changed: by these alone, where all
    were timed in their places."""
    before = _before(own_plan, race)
    losses = [*_losses_s(found, before, change).values()]
    known = [loss for loss in losses if loss is not None]
    before_s = timing_of(before).latency_s
    lost_s = sum(known) if known == losses else timing_of(found).latency_s - before_s
    return 1 + lost_s / before_s


def _affordable(
    found: PlanResult, own_plan: NetworkPlan, change: Mapping[str, Candidate], race: Race
) -> dict[str, Candidate]:
    """Of the changes those that together lose no more time than aimed at, what saves most bytes per
    second first."""
    before, sizes = _before(own_plan, race), _weight_bytes(own_plan)
    losses = {name: loss or 0.0 for name, loss in _losses_s(found, before, change).items()}
    left_s = (_AIM - 1) * timing_of(before).latency_s
    kept: dict[str, Candidate] = {}
    for name in sorted(change, key=lambda name: losses[name] / max(1, sizes[name])):
        if losses[name] <= left_s:
            kept[name] = change[name]
            left_s -= max(0.0, losses[name])
    return kept


def _before(own_plan: NetworkPlan, race: Race) -> PlanResult:
    """The plan that shares nothing, as the race timed it last."""
    return next(each for each in race.finished if each.plan == own_plan)


def _weight_bytes(plan: NetworkPlan) -> dict[str, int]:
    """Bytes of the packed constants of each call."""
    sizes = {c.name: prod(c.shape) * element_type(c.dtype).bytes for c in plan.constants}
    return {call.name: sum(map(sizes.__getitem__, call.constants.values())) for call in plan.calls}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a plan would have to change to pack its weights as others do."""

    plan: NetworkPlan
    others: OtherShapes
    placement: Placement
    store: Store
    max_error: float

    def changes(self) -> dict[str, Candidate]:
        """Other candidates for the calls whose packing no earlier plan has, or, where there is no
        earlier one, for those that suit later ones better, where there are any."""
        found: dict[str, Candidate] = {}
        for call in self.plan.calls:
            packs = packing_of(call, call.candidate)
            theirs = _calls_named(call.name, self.others.earlier)
            wanted = [packing_of(each, each.candidate) for _, each in theirs]
            if not packs[1] or packs in wanted:
                continue
            candidate = self._best_of(call, wanted or self._suiting_later(call))
            if candidate is not None:
                found[call.name] = candidate
        return found

    def _suiting_later(self, call: PlannedCall) -> list[Packing]:
        """Packings of later plans that cost this one less than its own costs them: in time,
        relative to the whole network, times values that are stored."""
        packs = packing_of(call, call.candidate)
        found: list[Packing] = []
        for plan, theirs in _calls_named(call.name, self.others.later):
            wanted = packing_of(theirs, theirs.candidate)
            if wanted[1] and wanted != packs:
                ours = self.loss(self.plan, call, wanted) * _values(wanted)
                if ours < self.loss(plan, theirs, packs) * _values(packs):
                    found.append(wanted)
        return found

    def loss(self, plan: NetworkPlan, call: PlannedCall, wanted: Packing) -> float:
        """By which part of a plan's time a call is estimated to be slower with another packing than
        with its own, infinite where it cannot have it."""
        own_s, other_s = (
            next((seconds for _, seconds in self._estimated(call, [packing])), inf)
            for packing in (packing_of(call, call.candidate), wanted)
        )
        return (other_s - own_s) / self._estimate_s(plan) if own_s < inf else inf

    def _estimate_s(self, plan: NetworkPlan) -> float:
        return sum(
            task.count * ranked_defaults(task.workload, task.forms, self.placement)[0][1]
            for task in plan.tasks.values()
        )

    def _best_of(self, call: PlannedCall, wanted: Sequence[Packing]) -> Candidate | None:
        """The fastest that is known to pack in one of some ways, else the one that is estimated to
        be."""
        for candidate in self._measured(call):
            if packing_of(call, candidate) in wanted:
                return candidate
        return next((candidate for candidate, _ in self._estimated(call, wanted)), None)

    def _measured(self, call: PlannedCall) -> list[Candidate]:
        task = self.plan.tasks[call.task]
        known = ranked(own(known_outcomes(task, self.store, self.placement)))
        return [measurement.candidate for measurement in known]

    def _estimated(
        self, call: PlannedCall, wanted: Sequence[Packing]
    ) -> Iterator[tuple[Candidate, float]]:
        """Candidates that pack in one of the ways that are wanted and their estimates, space after
        space, the fastest of each first."""
        names = {name for name, _ in wanted}
        for space in spaces(call.workload, call.candidate.forms, self.placement, self.max_error):
            if space.spec.name in names:
                for place in np.argsort(space.estimates_s)[:_TRIED]:
                    candidate = space.part.candidate(int(space.numbers[place]))
                    if packing_of(call, candidate) in wanted:
                        yield candidate, float(space.estimates_s[place])


def _calls_named(name: str, plans: Sequence[NetworkPlan]) -> list[tuple[NetworkPlan, PlannedCall]]:
    return [(plan, call) for plan in plans for call in plan.calls if call.name == name]


def _values(packing: Packing) -> int:
    return sum(prod(shape) for _, shape in packing[1])


def packing_of(call: PlannedCall, candidate: Candidate) -> Packing:
    """How a candidate packs the constants of a call; those that it takes as they are left out."""
    shapes = implementation(candidate.implementation).packed_shapes(call.workload, candidate)
    kept = ((index, tuple(shape)) for index, shape in shapes.items() if index in call.constants)
    return candidate.implementation, tuple(sorted(kept))

"""Several shapes of a network agree on how weights are packed, so that these are stored once.

    batch 1: conv2d_direct, weights 4x16x3x3x16x16
    batch 4: conv2d_direct, weights 2x16x3x3x16x32  →  4x16x3x3x16x16, where that costs little

The plan of a shape raced already. It races once more against one in which every task packs its
weights as an earlier shape does, with the best settings that do so. Where that is too slow, the
tasks that lose most time per byte keep weights of their own. How slow is told by the tasks that
changed, in their places: whole networks of equal kernels differ by more than sharing may cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.records import Candidate, Placement
from tilewright.deploy.racing import Race, timing_of
from tilewright.graph.plan import NetworkPlan, PlannedCall
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import with_candidates
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import TaskSpace, spaces
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


def agree(race: Race, earlier: Sequence[NetworkPlan], store: Store, max_error: float) -> None:
    """Race the winner against plans that share weights with `earlier` ones; one of them goes to the
    front where it is nearly as fast."""
    best = race.winner
    change = _Agreement(best.plan, earlier, race.placement, store, max_error).changes()
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
    race: Race, best: PlanResult, change: Mapping[TaskKey, Candidate], name: str
) -> PlanResult | None:
    """The winner with some candidates changed, after a race; None where it gave wrong results or
    lost before."""
    plan = with_candidates(best.plan, change)
    kept = {call.name: best.call(call.name) for call in plan.calls if call.task not in change}
    race.challenge(PlanResult(name=name, plan=plan, calls=kept))
    return next((each for each in race.finished if each.name == name), None)


def _losses_s(
    found: PlanResult, before: PlanResult, change: Mapping[TaskKey, Candidate]
) -> dict[TaskKey, float | None]:
    """Time that all calls of each changed task lose in their places; None where it is unknown."""
    losses: dict[TaskKey, float | None] = dict.fromkeys(change)
    for key in change:
        own_s, now_s = before.task(key).in_place_s, found.task(key).in_place_s
        if own_s is not None and now_s is not None:
            losses[key] = before.plan.tasks[key].count * (now_s - own_s)
    return losses


def _slower(
    found: PlanResult, own_plan: NetworkPlan, change: Mapping[TaskKey, Candidate], race: Race
) -> float:
    """How many times as slow as before a plan is with some tasks changed: by these tasks alone,
    where all were timed in their places."""
    before = _before(own_plan, race)
    losses = [*_losses_s(found, before, change).values()]
    known = [loss for loss in losses if loss is not None]
    before_s = timing_of(before).latency_s
    lost_s = sum(known) if known == losses else timing_of(found).latency_s - before_s
    return 1 + lost_s / before_s


def _affordable(
    found: PlanResult, own_plan: NetworkPlan, change: Mapping[TaskKey, Candidate], race: Race
) -> dict[TaskKey, Candidate]:
    """Of the changes those that together lose no more time than aimed at, what saves most bytes per
    second first."""
    before, sizes = _before(own_plan, race), _weight_bytes(own_plan)
    losses = {key: loss or 0.0 for key, loss in _losses_s(found, before, change).items()}
    left_s = (_AIM - 1) * timing_of(before).latency_s
    kept: dict[TaskKey, Candidate] = {}
    for key in sorted(change, key=lambda key: losses[key] / max(1, sizes[key])):
        if losses[key] <= left_s:
            kept[key] = change[key]
            left_s -= max(0.0, losses[key])
    return kept


def _before(own_plan: NetworkPlan, race: Race) -> PlanResult:
    """The plan that shares nothing, as the race timed it last."""
    return next(each for each in race.finished if each.plan == own_plan)


def _weight_bytes(plan: NetworkPlan) -> dict[TaskKey, int]:
    """Bytes of the packed constants of all calls of each task."""
    sizes = {c.name: prod(c.shape) * element_type(c.dtype).bytes for c in plan.constants}
    found = dict.fromkeys(plan.tasks, 0)
    for call in plan.calls:
        found[call.task] += sum(sizes[name] for name in call.constants.values())
    return found


@dataclass(frozen=True, slots=True)
class _Agreement:
    """What a plan would have to change to pack its weights as earlier ones do."""

    plan: NetworkPlan
    earlier: Sequence[NetworkPlan]
    placement: Placement
    store: Store
    max_error: float

    def changes(self) -> dict[TaskKey, Candidate]:
        """Other candidates for the tasks whose packing no earlier plan has, where there are any."""
        known = [{call.name: call for call in plan.calls} for plan in self.earlier]
        found: dict[TaskKey, Candidate] = {}
        for call in self.plan.calls:
            theirs = [calls[call.name] for calls in known if call.name in calls]
            wanted = [_packing(each, each.candidate) for each in theirs]
            packs = _packing(call, call.candidate)
            if call.task in found or not packs[1] or not wanted or packs in wanted:
                continue
            candidate = self._best_of(call, wanted)
            if candidate is not None:
                found[call.task] = candidate
        return found

    def _best_of(self, call: PlannedCall, wanted: Sequence[Packing]) -> Candidate | None:
        """The fastest that is known to pack in one of some ways, else the one that is estimated to
        be."""
        for candidate in (*self._measured(call), *self._estimated(call, wanted)):
            if _packing(call, candidate) in wanted:
                return candidate
        return None

    def _measured(self, call: PlannedCall) -> list[Candidate]:
        task = self.plan.tasks[call.task]
        known = ranked(own(known_outcomes(task, self.store, self.placement)))
        return [measurement.candidate for measurement in known]

    def _estimated(self, call: PlannedCall, wanted: Sequence[Packing]) -> Iterator[Candidate]:
        """Candidates of the implementations that are wanted, by estimate."""
        names = {name for name, _ in wanted}
        forms = call.candidate.forms
        offered = spaces(call.workload, forms, self.placement, self.max_error)
        for space in offered:
            if space.spec.name in names:
                yield from _by_estimate(space)


def _by_estimate(space: TaskSpace) -> Iterator[Candidate]:
    for place in np.argsort(space.estimates_s)[:_TRIED]:
        yield space.part.candidate(int(space.numbers[place]))


def _packing(call: PlannedCall, candidate: Candidate) -> Packing:
    """How a candidate packs the constants of a call; those that it takes as they are left out."""
    shapes = implementation(candidate.implementation).packed_shapes(call.workload, candidate)
    kept = ((index, tuple(shape)) for index, shape in shapes.items() if index in call.constants)
    return candidate.implementation, tuple(sorted(kept))

"""The planner `auto`: the planner that a problem calls for, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.choosing import gathered, least
from tilewright.plan.scheduling.parts import NO_LIMITS
from tilewright.plan.scheduling.planners.chain_dp import ChainDp
from tilewright.plan.scheduling.planners.cpsat import CpSat
from tilewright.plan.scheduling.planners.ios import InStages
from tilewright.plan.scheduling.planners.sequential import Sequential
from tilewright.plan.scheduling.precedence import chains, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound, Scheduler

_NOTHING = 1e-3
"""The share of the objective that is not worth a search."""

_FOLLOWING: tuple[Scheduler, ...] = (ChainDp(), InStages())
"""What lets requests follow each other: calls keep their cores, or those of a stage do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """`sequential` where no schedule gains a thousandth over it, `chain_dp` for chains without
    limits, else `cpsat`, which begins with what the others find; `sequential` again where calls
    beside each other slow each other down by more than is gained. Where requests are to follow each
    other soon, the pipeline of `chain_dp` and the lanes of `stages` are weighed against all of
    these. `note` says which and why, and `planner` which."""

    name: str = "auto"

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The schedule of that planner."""
        simple = self._sequential(problem, limit_s)
        if simple is not None:
            return simple
        chain = len(chains(waits_of(problem))) == 1 and problem.limits == NO_LIMITS
        limited = any(
            each is not None
            for device in problem.devices
            for each in (device.memory_bytes, device.power_w, device.bytes_per_s)
        )
        if chain and not limited and problem.objective in ("latency", "energy"):
            found = ChainDp().schedule(problem, limit_s)
            return replace(found, bound=found.objective, note="the network is a chain")
        follows = [*_following(problem, limit_s)] if problem.objective == "throughput" else []
        searched = CpSat().improved(problem, follows, limit_s)
        every = [*follows, searched]
        with suppress(NothingFound):
            every.append(Sequential().schedule(problem, limit_s))
        found = least(problem, every)
        note = _why(found, searched, follows)
        return replace(found, bound=searched.bound, note=note, considered=gathered(every))

    def _sequential(self, problem: SchedulingProblem, limit_s: float) -> Schedule | None:
        """One call after the other where that is all there is to gain."""
        try:
            found = Sequential().schedule(problem, limit_s)
        except NothingFound:
            return None
        left = found.objective - bound(problem)
        if left > _NOTHING * found.objective:
            return None
        return replace(found, note="no schedule gains a thousandth over one call after the other")


def _following(problem: SchedulingProblem, limit_s: float) -> Iterator[Schedule]:
    """A pipeline and stages, where there are any."""
    for planner in _FOLLOWING:
        with suppress(NothingFound):
            yield planner.schedule(problem, limit_s)


def _why(found: Schedule, searched: Schedule, follows: Sequence[Schedule]) -> str:
    if found is searched:
        parts = f", {found.note}" if found.note else ""
        weighed = "; a pipeline and stages let requests follow no sooner" if follows else ""
        return f"calls may run beside each other or compete{parts}{weighed}"
    if any(found is each for each in follows):
        soonest = f"requests follow each other soonest by {found.planner}"
        return f"{soonest}; a search finds nothing sooner"
    return "calls beside each other lose more than they gain"

"""Less energy from a schedule that is known: the same calls in the same order, in other modes.

    fast        card 2.07 ms, 394 mJ            a joule has a price in seconds, and each call takes
    price 0     each call in its fastest mode   the mode on its cores with the least
    price 1     card at the slower clock        time + price × energy
    then        by chance: order and modes change, while all end in time (`saving`)
    then        one call after the other in any mode that saves more, while all limits are kept

A price for what several choices share is how Lagrange relaxes a limit (M. Fisher, Management
Science 27, 1981); modes with a time and a cost each are the discrete time-cost tradeoff problem
(P. De et al., European Journal of Operational Research 81, 1995).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from math import inf
from time import perf_counter

from tilewright.plan.scheduling.capacities import ROUNDING
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.planners.annealing import Found
from tilewright.plan.scheduling.planners.changing_list import ChangingList
from tilewright.plan.scheduling.planners.saving import thriftier_lists
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound

_PRICES = tuple(4.0**power for power in range(-5, 8))
"""Of the energy of a call, in the time that a call takes, both in the mean."""

_STEPS = 500
"""That each call has of those by chance, in the mean: at most."""
_WALK = 0.9
"""Of the time that is left, for these."""


def thriftier(problem: SchedulingProblem, start: Schedule, until: float) -> Schedule | None:
    """The schedule with the least objective that keeps all limits, of those with the calls of
    `start` in its order and in modes that are worth their energy; None where there is none. `start`
    need not keep limits of time and energy. Stops at `until` by the clock of `perf_counter`."""
    order = [problem.numbers[slot.call] for slot in start.slots]
    found: Schedule | None = None
    for modes in _priced(problem, start):
        if perf_counter() >= until:
            break
        found = _better(problem, order, modes, found) or found
    if found is not None and problem.objective == "energy":
        return _one_by_one(problem, _by_chance(problem, found, until), until)
    return found


def saves(problem: SchedulingProblem) -> bool:
    """Whether energy counts beside time."""
    return problem.objective == "energy" or problem.limits.energy_j is not None


def _priced(problem: SchedulingProblem, start: Schedule) -> Iterator[tuple[int, ...]]:
    """The modes of all calls by rising prices of energy, on the cores that they have."""
    there: list[list[int]] = []
    for call in problem.calls:
        now = start.mode_of(problem, call.name)
        same = (m.device == now.device and m.cores == now.cores for m in call.modes)
        there.append([place for place, fits in enumerate(same) if fits])
    every = [mode for call in problem.calls for mode in call.modes]
    joules = sum(mode.energy_j or 0.0 for mode in every)
    unit = sum(mode.latency_s for mode in every) / joules if joules else 0.0
    chosen = (
        tuple(
            min(
                places,
                key=lambda at: (
                    call.modes[at].latency_s + price * unit * (call.modes[at].energy_j or 0.0)
                ),
            )
            for call, places in zip(problem.calls, there, strict=True)
        )
        for price in (0.0, *_PRICES)
    )
    yield from dict.fromkeys(chosen)


def _better(
    problem: SchedulingProblem,
    order: Sequence[int],
    modes: Sequence[int],
    than: Schedule | None,
) -> Schedule | None:
    """These modes in this order, where they keep all limits and are better than that."""
    with suppress(NothingFound):
        return _kept(problem, decode(problem, order, modes, planner="thrift"), than)
    return None


def _kept(problem: SchedulingProblem, made: Schedule, than: Schedule | None) -> Schedule | None:
    soon = made.latency_s <= problem.limits.deadlines_s.get("", inf)
    less = than is None or made.objective < than.objective
    return made if soon and less and next(faults(problem, made), None) is None else None


def _by_chance(problem: SchedulingProblem, found: Schedule, until: float) -> Schedule:
    """What is saved where the order changes as well; as many steps as there is time for, but no
    more than so many for each call."""
    order = [problem.numbers[slot.call] for slot in found.slots]
    modes = [found.slot[call.name].mode for call in problem.calls]
    steps, begin = count(), perf_counter()
    lasts_s = max(_WALK * (until - begin), 1e-9)
    every = _STEPS * len(modes)
    within_s = problem.limits.deadlines_s.get("", inf) * (1 + ROUNDING)
    made = thriftier_lists(
        problem,
        order,
        modes,
        within_s,
        lambda: max(next(steps) / every, (perf_counter() - begin) / lasts_s),
    )
    better = (_as_placed(problem, each, found) for each in made)
    return next(filter(None, better), found)


def _as_placed(problem: SchedulingProblem, found: Found, than: Schedule) -> Schedule | None:
    """The schedule of a list as it is, or with the places that limits of devices leave; None where
    neither keeps all limits and is better."""
    placed = ChangingList(problem, found.order, found.modes).schedule("thrift")
    return _kept(problem, placed, than) or _better(problem, found.order, found.modes, than)


def _one_by_one(problem: SchedulingProblem, found: Schedule, until: float) -> Schedule:
    """Calls in modes with less energy, those that save most first, until none saves any more."""
    before = None
    while found is not before:
        before = found
        now = {
            call.name: found.mode_of(problem, call.name).energy_j or 0.0 for call in problem.calls
        }
        moves = [
            (now[call.name] - (mode.energy_j or 0.0), number, place)
            for number, call in enumerate(problem.calls)
            for place, mode in enumerate(call.modes)
        ]
        for saved_j, number, place in sorted(moves, key=lambda move: -move[0]):
            if saved_j <= 0.0 or perf_counter() >= until:
                break
            modes = [found.slot[call.name].mode for call in problem.calls]
            modes[number] = place
            order = [problem.numbers[slot.call] for slot in found.slots]
            found = _better(problem, order, modes, found) or found
    return found

"""From a problem through CP-SAT to a schedule: hints go in, modes, begins and cores come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ortools.sat.python import cp_model

from tilewright.plan.scheduling.planners.constraint_limits import least, limit
from tilewright.plan.scheduling.planners.constraint_model import ConstraintModel, Sent
from tilewright.plan.scheduling.planners.core_numbers import Timed, core_numbers
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot, TransferSlot

_PROPAGATION = (
    "use_overload_checker_in_cumulative",
    "use_timetable_edge_finding_in_cumulative",
    "use_conservative_scale_overload_checker",
)
"""What CP-SAT concludes from shared cores; it leaves these off by default, and then takes ten times
as long to prove the optimum of nine calls on four cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How long CP-SAT searches, on how many threads, from which random numbers."""

    limit_s: float
    workers: int
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What CP-SAT found and proved: no schedule that ends within the horizon has less than `bound`,
    and there is none where it is `impossible`.

    `timed` is None where nothing was found, and `schedule`, which has no objective yet, also where
    cores could not be given to calls so that hand-offs are as counted.
    """

    timed: Sequence[Timed] | None = None
    schedule: Schedule | None = None
    bound: float = 0.0
    impossible: bool = False


def solved(
    problem: SchedulingProblem, horizon_s: float, start: Schedule | None, search: Search
) -> Outcome:
    """What CP-SAT finds for a problem within its time; `start` is a schedule to improve."""
    model = ConstraintModel(problem, horizon_s)
    limit(model)
    aim = least(model)
    model.model.minimize(aim.number)
    if start is not None:
        _hint(model, start)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = search.limit_s
    solver.parameters.num_workers = search.workers
    solver.parameters.random_seed = search.seed
    for name in _PROPAGATION:
        setattr(solver.parameters, name, True)
    status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE:
        return Outcome(impossible=True)
    if status == cp_model.MODEL_INVALID:
        raise ValueError(model.model.validate())
    bound = max(0.0, (solver.best_objective_bound - aim.slack) * aim.unit)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Outcome(bound=bound)
    timed = _timed(model, solver)
    return Outcome(timed=timed, schedule=_schedule(model, solver, timed), bound=bound)


def _timed(model: ConstraintModel, solver: cp_model.CpSolver) -> list[Timed]:
    found: list[Timed] = []
    for call, begin, taken in zip(model.problem.calls, model.begin, model.taken, strict=True):
        place = next(at for at, literal in enumerate(taken) if solver.boolean_value(literal))
        begin_s = solver.value(begin) * model.ticks.unit_s
        end_s = begin_s + call.modes[place].latency_s
        found.append(Timed(mode=place, begin_s=begin_s, end_s=end_s))
    return found


def _schedule(
    model: ConstraintModel, solver: cp_model.CpSolver, timed: Sequence[Timed]
) -> Schedule | None:
    problem = model.problem
    cores = _told_apart(model, solver, timed) if model.cores else core_numbers(problem, timed)
    if cores is None:
        return None
    slots = [
        Slot(call=call.name, mode=each.mode, begin_s=each.begin_s, end_s=each.end_s, cores=own)
        for call, each, own in zip(problem.calls, timed, cores, strict=True)
    ]
    device = [call.modes[at.mode].device for call, at in zip(problem.calls, timed, strict=True)]
    transfers: list[TransferSlot] = []
    for (number, origin, destination), sent in model.sent.items():
        readers = [device[reader] for reader, _ in problem.after[number]]
        if device[number] == origin and destination in readers:
            seconds = problem.transfer_s(number, origin, destination)
            begin_s = solver.value(sent.begin) * model.ticks.unit_s
            transfers.append(
                TransferSlot(
                    call=problem.calls[number].name,
                    origin=origin,
                    destination=destination,
                    begin_s=begin_s,
                    end_s=begin_s + (seconds or 0.0),
                )
            )
    return Schedule(
        planner="cpsat",
        slots=tuple(sorted(slots, key=lambda slot: (slot.begin_s, slot.end_s))),
        transfers=tuple(sorted(transfers, key=lambda way: way.begin_s)),
        objective=0.0,
    )


def _told_apart(
    model: ConstraintModel, solver: cp_model.CpSolver, timed: Sequence[Timed]
) -> list[tuple[int, ...]]:
    """The cores where the model itself gave them."""
    devices = [c.modes[at.mode].device for c, at in zip(model.problem.calls, timed, strict=True)]
    return [
        tuple(at for at, has in enumerate(model.cores[key]) if solver.boolean_value(has))
        for key in enumerate(devices)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """A call or transfer of the start, and its length in ticks."""

    begin_s: float
    end_s: float
    length: int
    of: int | Sent


def _hint(model: ConstraintModel, start: Schedule) -> None:
    """Tell a schedule to the model."""
    problem, ticks, add = model.problem, model.ticks, model.model.add_hint
    uses: list[_Use] = []
    for number, call in enumerate(problem.calls):
        slot = start.slot[call.name]
        length = ticks.up(call.modes[slot.mode].latency_s)
        uses.append(_Use(begin_s=slot.begin_s, end_s=slot.end_s, length=length, of=number))
    for way in start.transfers:
        sent = model.sent[problem.numbers[way.call], way.origin, way.destination]
        uses.append(_Use(begin_s=way.begin_s, end_s=way.end_s, length=sent.length, of=sent))
    last = 0
    for use, begin in _in_ticks(uses, problem.handoff_s, ticks.up(problem.handoff_s)):
        last = max(last, begin + use.length)
        if isinstance(use.of, int):
            slot = start.slot[problem.calls[use.of].name]
            add(model.begin[use.of], begin)
            add(model.end[use.of], begin + use.length)
            for place, literal in enumerate(model.taken[use.of]):
                add(literal, place == slot.mode)
        else:
            add(use.of.begin, begin)
            add(use.of.present, True)
    add(model.makespan, last)
    for (before, after), literal in model.same.items():
        one, other = (start.slot[problem.calls[number].name] for number in (before, after))
        add(literal, one.cores == other.cores and _device(problem, one) == _device(problem, other))


def _device(problem: SchedulingProblem, slot: Slot) -> str:
    return problem.calls[problem.numbers[slot.call]].modes[slot.mode].device


def _in_ticks(uses: Sequence[_Use], handoff_s: float, handoff: int) -> Iterator[tuple[_Use, int]]:
    """Each with a begin in ticks, in order: after all that had ended before, and a hand-off after
    all that had ended so much earlier, so that it fits although lengths are rounded up."""
    close = 1e-9 * max(use.end_s for use in uses)
    open_uses: list[tuple[float, int, int]] = []
    passed: list[tuple[float, int]] = []
    soonest = 0
    for use in sorted(uses, key=lambda each: (each.begin_s, each.end_s)):
        while open_uses and open_uses[0][0] <= use.begin_s + close:
            end_s, end, _ = heappop(open_uses)
            soonest = max(soonest, end)
            heappush(passed, (end_s, end))
        while passed and passed[0][0] + handoff_s <= use.begin_s + close:
            soonest = max(soonest, heappop(passed)[1] + handoff)
        yield use, soonest
        heappush(open_uses, (use.end_s, soonest + use.length, len(open_uses)))

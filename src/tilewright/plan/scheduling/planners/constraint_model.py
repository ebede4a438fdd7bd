"""A scheduling problem as constraints over whole numbers, for OR-Tools' CP-SAT.

    each call    one of its modes, an interval of that mode's length where the mode is taken
    each device  intervals together need no more cores than it has
    each link    transfers one after the other, there where a result and its reader are apart
    each wait    the reader begins after the writer, the transfer and the hand-off

Times are rounded up to whole ticks, so that what is found keeps its limits in exact times as well.
Cores are counted here and told apart by number later: a hand-off is left out where two calls may
have the same cores, so that no schedule is worse than what is proven here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any, cast

from ortools.sat.python import cp_model

from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem

_DIGITS = 8
_CLOSE = 1e-6

Sum = cp_model.LinearExpr
Literal = cp_model.IntVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Seconds as whole numbers of `unit_s`."""

    unit_s: float

    def up(self, seconds: float) -> int:
        """The least number that is no shorter."""
        return ceil(seconds / self.unit_s - _CLOSE)

    def down(self, seconds: float) -> int:
        """The largest number that is no longer."""
        return floor(seconds / self.unit_s + _CLOSE)

    def whole(self, seconds: float) -> bool:
        """Whether a time is a number of ticks as it is."""
        return self.up(seconds) == self.down(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A transfer that may be needed: when it is, and its interval."""

    present: Literal
    begin: cp_model.IntVar
    end: cp_model.IntVar
    interval: cp_model.IntervalVar
    length: int


class ConstraintModel:
    """The constraints of a problem whose last call ends within `horizon_s`.

    `taken` has a literal for each mode of each call, `begin`, `length` and `end` the ticks of each
    call, `on` a literal for each device of each call, `sent` the transfers by call, origin and
    destination, `same` a literal for each wait whose calls may have the same cores.
    """

    def __init__(self, problem: SchedulingProblem, horizon_s: float) -> None:
        digits = ceil(log10(horizon_s)) - _DIGITS if horizon_s else 0
        self.problem = problem
        self.ticks = Ticks(unit_s=10.0**digits)
        self.horizon = self.ticks.up(horizon_s) + 2 * len(problem.calls)
        self.model = cp_model.CpModel()
        self.always: Literal = self.model.new_constant(1)
        self.never: Literal = self.model.new_constant(0)
        self.makespan = self.time()
        self.taken: list[list[Literal]] = []
        self.begin: list[cp_model.IntVar] = []
        self.length: list[cp_model.IntVar] = []
        self.end: list[cp_model.IntVar] = []
        self.on: list[dict[str, Literal]] = []
        self.sent: dict[tuple[int, str, str], Sent] = {}
        self.same: dict[tuple[int, int], Literal] = {}
        self.cores: dict[tuple[int, str], list[Literal]] = {}
        self.intervals: dict[str, list[tuple[cp_model.IntervalVar, Mode, Literal]]] = {}
        for call in problem.calls:
            self._add_call(call.modes)
        for after, writers in enumerate(problem.before):
            for before, _ in writers:
                self._add_wait(before, after)
        self._share_cores()
        self._share_links()
        self._keep_apart()

    def time(self) -> cp_model.IntVar:
        """Some tick up to the horizon."""
        return self.model.new_int_var(0, self.horizon, "")

    def exact(self) -> bool:
        """Whether all times are whole numbers of ticks."""
        problem = self.problem
        modes = [mode.latency_s for call in problem.calls for mode in call.modes]
        sent = range(len(problem.calls))
        transfers = [seconds for number in sent for seconds in problem.transfers_s(number)]
        return all(map(self.ticks.whole, [problem.handoff_s, *modes, *transfers]))

    def _add_call(self, modes: Sequence[Mode]) -> None:
        model, begin, end = self.model, self.time(), self.time()
        lengths = [self.ticks.up(mode.latency_s) for mode in modes]
        length = model.new_int_var(min(lengths), max(lengths), "")
        taken = [model.new_bool_var("") for _ in modes]
        model.add_exactly_one(taken)
        model.add(length == weighted(taken, lengths))
        model.add(end == begin + length)
        model.add(end <= self.makespan)
        there: dict[str, list[Literal]] = {}
        for mode, literal, ticks in zip(modes, taken, lengths, strict=True):
            interval = model.new_optional_interval_var(begin, ticks, end, literal, "")
            self.intervals.setdefault(mode.device, []).append((interval, mode, literal))
            there.setdefault(mode.device, []).append(literal)
        self.taken.append(taken)
        self.begin.append(begin)
        self.length.append(length)
        self.end.append(end)
        self.on.append({name: self._any(some, len(modes)) for name, some in there.items()})

    def _any(self, literals: Sequence[Literal], of: int) -> Literal:
        """A literal for one of these being true, of which there are so many in all."""
        if len(literals) == of:
            return self.always
        if len(literals) == 1:
            return literals[0]
        either = self.model.new_bool_var("")
        self.model.add(either == sum(literals))
        return either

    def _add_wait(self, before: int, after: int) -> None:
        handoff = self.ticks.up(self.problem.handoff_s)
        begin, end = self.begin[after], self.end[before]
        self.model.add(begin >= end)
        if handoff:
            same = self._same(before, after)
            only_if(self.model.add(begin >= end + handoff), ~same)
        for origin, there in self.on[before].items():
            for destination, here in self.on[after].items():
                if origin == destination:
                    continue
                sent = self._transfer(before, origin, destination)
                if sent is None:
                    self.model.add_bool_or(~there, ~here)
                else:
                    self.model.add_bool_or(~there, ~here, sent.present)
                    only_if(self.model.add(begin >= sent.end + handoff), there, here)

    def _same(self, before: int, after: int) -> Literal:
        """Whether a call may have the cores of the one that it waits for."""
        if (before, after) not in self.same:
            same, model = self.model.new_bool_var(""), self.model
            shapes = [self._shapes(before), self._shapes(after)]
            for shape, there in shapes[0].items():
                for literal in there:
                    model.add_bool_or(~same, ~literal, *shapes[1].get(shape, ()))
            self.same[before, after] = same
        return self.same[before, after]

    def core(self, call: int, device: str) -> list[Literal]:
        """For each core of a device whether a call has it. Raises no question where none asks:
        cores are told apart only where what is to be least depends on which it is."""
        if (call, device) not in self.cores:
            model, cores = self.model, self.problem.device[device].cores
            literals = [model.new_bool_var("") for _ in range(cores)]
            wanted = [
                (literal, mode.cores)
                for mode, literal in zip(
                    self.problem.calls[call].modes, self.taken[call], strict=True
                )
                if mode.device == device
            ]
            model.add(sum(literals) == weighted(*zip(*wanted, strict=True)))
            self.cores[call, device] = literals
        return self.cores[call, device]

    def _shapes(self, call: int) -> dict[tuple[str, int], list[Literal]]:
        """The literals of a call's modes by device and number of cores."""
        found: dict[tuple[str, int], list[Literal]] = {}
        modes = self.problem.calls[call].modes
        for mode, literal in zip(modes, self.taken[call], strict=True):
            found.setdefault((mode.device, mode.cores), []).append(literal)
        return found

    def _transfer(self, call: int, origin: str, destination: str) -> Sent | None:
        """The result of a call on its way to another device; None where no link goes there."""
        seconds = self.problem.transfer_s(call, origin, destination)
        if seconds is None:
            return None
        key = (call, origin, destination)
        if key not in self.sent:
            present, begin, end = self.model.new_bool_var(""), self.time(), self.time()
            length = self.ticks.up(seconds)
            interval = self.model.new_optional_interval_var(begin, length, end, present, "")
            self.model.add_implication(present, self.on[call][origin])
            only_if(self.model.add(begin >= self.end[call]), present)
            self.sent[key] = Sent(
                present=present, begin=begin, end=end, interval=interval, length=length
            )
        return self.sent[key]

    def _share_cores(self) -> None:
        for name, uses in self.intervals.items():
            cores = self.problem.device[name].cores
            if cores == 1:
                self.model.add_no_overlap(interval for interval, _, _ in uses)
            else:
                demands = [mode.cores for _, mode, _ in uses]
                self.model.add_cumulative([interval for interval, _, _ in uses], demands, cores)
            self.model.add(self.work(name) <= cores * self.makespan)

    def work(self, device: str) -> Sum:
        """The ticks of all cores of a device that calls take."""
        uses = self.intervals.get(device, [])
        ticks = [mode.cores * self.ticks.up(mode.latency_s) for _, mode, _ in uses]
        return weighted([literal for _, _, literal in uses], ticks)

    def loads(self) -> dict[tuple[str, str], Sum]:
        """The ticks of each link that transfers take."""
        found: dict[tuple[str, str], list[Sent]] = {}
        for (_, origin, destination), sent in self.sent.items():
            found.setdefault((origin, destination), []).append(sent)
        return {
            way: weighted([each.present for each in sent], [each.length for each in sent])
            for way, sent in found.items()
        }

    def _share_links(self) -> None:
        ways: dict[tuple[str, str], list[cp_model.IntervalVar]] = {}
        for (_, origin, destination), sent in self.sent.items():
            ways.setdefault((origin, destination), []).append(sent.interval)
        for intervals in ways.values():
            self.model.add_no_overlap(intervals)

    def _keep_apart(self) -> None:
        """Calls that have the cores of one and the same other are not at a time."""
        groups: dict[tuple[str, int], list[cp_model.IntervalVar]] = {}
        for (before, after), same in self.same.items():
            for group, member in ((("after", before), after), (("before", after), before)):
                begin, length, end = self.begin[member], self.length[member], self.end[member]
                interval = self.model.new_optional_interval_var(begin, length, end, same, "")
                groups.setdefault(group, []).append(interval)
        for intervals in groups.values():
            if len(intervals) > 1:
                self.model.add_no_overlap(intervals)


def weighted(literals: Iterable[Literal], weights: Iterable[int]) -> Sum:
    """The sum of the weights of what is true."""
    return cast(Any, cp_model.LinearExpr).weighted_sum(list(literals), list(weights))


def only_if(constraint: cp_model.Constraint, *literals: cp_model.LiteralT) -> None:
    """Let a constraint count only where all of these are true."""
    cast(Any, constraint).only_enforce_if(*literals)

"""The limits of a scheduling problem, and what is to be least, as constraints (`constraint_model`).

Amounts are rounded up to a millionth of what there is, energies and prices much finer: what is
found keeps the limit; a schedule that needs all of it to the last millionth may not be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ortools.sat.python import cp_model

from tilewright.plan.scheduling.capacities import capacities, demand
from tilewright.plan.scheduling.measures import HOUR_S
from tilewright.plan.scheduling.parts import ScheduleDevice
from tilewright.plan.scheduling.planners.constraint_model import (
    ConstraintModel,
    Literal,
    Sum,
    only_if,
    weighted,
)
from tilewright.plan.scheduling.planners.cuts import may_be_full

_PARTS, _FINE = 1_000_000, 10**13
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """What is to be least: a whole `number` of `unit`, of which `slack` may be due to rounding."""

    number: Sum
    unit: float
    slack: int


def limit(model: ConstraintModel) -> None:
    """Add what every schedule must keep."""
    problem = model.problem
    for device in problem.devices:
        for name, most in capacities(device).items():
            if name != "cores":
                _share(model, device, name, most)
        if device.memory_bytes is not None and may_be_full(problem, device):
            _Memory(model, device, device.memory_bytes).add()
    for network, seconds in problem.limits.deadlines_s.items():
        for call, end in zip(problem.calls, model.end, strict=True):
            if network in ("", call.network):
                model.model.add(end <= model.ticks.down(seconds))
    if problem.limits.energy_j is not None:
        unit = problem.limits.energy_j / _FINE or 1.0
        model.model.add(_energy(model, unit) <= _whole(problem.limits.energy_j, unit))


def least(model: ConstraintModel) -> Least:
    """What the problem asks to be least."""
    problem, ticks = model.problem, model.ticks
    slack = 0 if model.exact() else 3 * len(problem.calls)
    if problem.objective == "latency":
        return Least(number=model.makespan, unit=ticks.unit_s, slack=slack)
    if problem.objective == "throughput":
        return Least(number=_period(model), unit=ticks.unit_s, slack=slack)
    if problem.objective == "energy":
        energies = [[mode.energy_j or 0.0 for mode in call.modes] for call in problem.calls]
        most = sum(map(max, energies)) + _idle_w(model) * model.horizon * ticks.unit_s
        unit = most / _FINE or 1.0
        slack = len(problem.calls) + model.horizon
        return Least(number=_energy(model, unit), unit=unit, slack=slack)
    most = sum(device.price_per_hour or 0.0 for device in problem.devices)
    unit = most / HOUR_S / _PARTS * ticks.unit_s or 1.0
    return Least(number=_price(model, unit), unit=unit, slack=model.horizon)


def _whole(amount: float, unit: float) -> int:
    """An amount in units, rounded up."""
    return ceil(amount / unit - _CLOSE)


def _share(model: ConstraintModel, device: ScheduleDevice, name: str, most: float) -> None:
    """Calls at a time take at most so much of something."""
    uses = model.intervals.get(device.name, [])
    unit = most / _PARTS or 1.0
    demands = [_whole(demand(name, device, mode), unit) for _, mode, _ in uses]
    for amount, (_, _, literal) in zip(demands, uses, strict=True):
        if amount > _PARTS:
            model.model.add(literal == 0)
    kept = [(use, amount) for use, amount in zip(uses, demands, strict=True) if amount <= _PARTS]
    intervals = [interval for (interval, _, _), _ in kept]
    model.model.add_cumulative(intervals, [amount for _, amount in kept], _PARTS)


def _idle_w(model: ConstraintModel) -> float:
    return sum(device.idle_w or 0.0 for device in model.problem.devices)


def _energy(model: ConstraintModel, unit: float) -> Sum:
    literals = [literal for taken in model.taken for literal in taken]
    modes = [mode for call in model.problem.calls for mode in call.modes]
    idle = _whole(_idle_w(model) * model.ticks.unit_s, unit)
    drawn = weighted(literals, [_whole(mode.energy_j or 0.0, unit) for mode in modes])
    return drawn + idle * model.makespan


def _price(model: ConstraintModel, unit: float) -> Sum:
    """What the devices cost that compute something, until the end."""
    total: list[cp_model.IntVar] = []
    for name, uses in model.intervals.items():
        price = (model.problem.device[name].price_per_hour or 0.0) / HOUR_S
        rate = _whole(price * model.ticks.unit_s, unit)
        cost = model.model.new_int_var(0, rate * model.horizon, "")
        for _, _, literal in uses:
            only_if(model.model.add(cost >= rate * model.makespan), literal)
        total.append(cost)
    return weighted(total, [1] * len(total))


def _period(model: ConstraintModel) -> Sum:
    """The longest time from the first use of a core or link to the last; cores of several are given
    to calls one by one."""
    period = model.time()
    for name in model.intervals:
        cores = model.problem.device[name].cores
        model.model.add(model.work(name) <= cores * period)
        for core in range(cores):
            _span(model, period, _uses_of_core(model, name, core))
    for (before, after), same in model.same.items():
        for device in model.on[before].keys() & model.on[after].keys():
            cores = zip(model.core(before, device), model.core(after, device), strict=True)
            for one, other in cores:
                only_if(model.model.add(one == other), same)
    for way in {key[1:] for key in model.sent}:
        sent = [each for key, each in model.sent.items() if key[1:] == way]
        _span(model, period, [(each.begin, each.end, each.present) for each in sent])
    return period


_Use = tuple[cp_model.IntVar, cp_model.IntVar, Literal]


def _span(model: ConstraintModel, period: cp_model.IntVar, uses: Sequence[_Use]) -> None:
    """All of these happen within one period."""
    first = model.time()
    for begin, end, present in uses:
        only_if(model.model.add(begin >= first), present)
        only_if(model.model.add(end <= first + period), present)


def _uses_of_core(model: ConstraintModel, device: str, core: int) -> list[_Use]:
    found: list[_Use] = []
    intervals: list[cp_model.IntervalVar] = []
    for call in range(len(model.begin)):
        if device in model.on[call]:
            begin, length, end = model.begin[call], model.length[call], model.end[call]
            literal = model.core(call, device)[core]
            intervals.append(model.model.new_optional_interval_var(begin, length, end, literal, ""))
            found.append((begin, end, literal))
    model.model.add_no_overlap(intervals)
    return found


@dataclass(frozen=True, slots=True)
class _Memory:
    """What lies on a device at a time; weights lie there all the time."""

    model: ConstraintModel
    device: ScheduleDevice
    most: int

    def add(self) -> None:
        """Weights, workspaces, results and copies together fit."""
        model, problem, name = self.model, self.model.problem, self.device.name
        uses = model.intervals.get(name, [])
        unit = max(1.0, self.most / _PARTS)
        held = [(each, mode.workspace_bytes) for each, mode, _ in uses if mode.workspace_bytes]
        for number, call in enumerate(problem.calls):
            if name in model.on[number] and call.output_bytes:
                held.append((self._result(number), call.output_bytes))
        for (number, _, destination), sent in model.sent.items():
            if destination == name and problem.sent_bytes[number]:
                until = self._until(number, sent.end, there=True)
                size = problem.sent_bytes[number]
                held.append((self._held(sent.begin, until, sent.present), size))
        most = int(self.most / unit)
        weights = [_whole(mode.weight_bytes, unit) for _, mode, _ in uses]
        left = model.model.new_int_var(0, most, "")
        model.model.add(left + weighted([use[2] for use in uses], weights) <= most)
        demands = [_whole(size, unit) for _, size in held]
        model.model.add_cumulative([interval for interval, _ in held], demands, left)

    def _result(self, number: int) -> cp_model.IntervalVar:
        until = self._until(number, self.model.end[number], there=False)
        if self.model.problem.calls[number].answer:
            self.model.model.add(until >= self.model.makespan)
        return self._held(self.model.begin[number], until, self.model.on[number][self.device.name])

    def _until(self, number: int, end: cp_model.IntVar, *, there: bool) -> cp_model.IntVar:
        """When nobody reads a call's result any more: none of all calls, or none of those on the
        device."""
        model, until = self.model, self.model.time()
        model.model.add(until >= end)
        for reader, _ in model.problem.after[number]:
            read = model.model.add(until >= model.end[reader])
            if there:
                only_if(read, model.on[reader].get(self.device.name, model.never))
        return until

    def _held(
        self, begin: cp_model.IntVar, until: cp_model.IntVar, present: Literal
    ) -> cp_model.IntervalVar:
        return self.model.model.new_optional_interval_var(
            begin, self.model.time(), until, present, ""
        )

"""What becomes of a plan where calls take other times than it was made for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.core.arguments import Text, named_of, path_of
from tilewright.core.errors import ModelError, close_matches
from tilewright.core.schedules import ScheduleResult
from tilewright.deploy.plan_answers import run_as, write_pictures
from tilewright.plan.scheduling.answering import answered
from tilewright.plan.scheduling.beside import slowdown_of
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.parts import Mode, ScheduledCall
from tilewright.plan.scheduling.plan_file import Plan, read_plan, read_times
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.simulator import simulate


def times_of(given: Mapping[str, float] | Text | None) -> Mapping[str, float]:
    """Seconds of calls by name, as they are or from a file. Raises as `read_times`."""
    if given is None or isinstance(given, Mapping):
        return named_of(given or {}, "times_s")
    return read_times(path_of(given, "times_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """What becomes of a plan where calls take other times: those of `times_s` by call, the upper
    ends of their intervals with `upper`, and on the devices in `slower` so many times as long."""

    times_s: Mapping[str, float] = field(default_factory=dict[str, float])
    upper: bool = False
    slower: Mapping[str, float] = field(default_factory=dict[str, float])

    def problem(self, plan: Plan) -> SchedulingProblem:
        """The plan's problem with these times. The other modes of a call in `times_s` are faster or
        slower by as much as the one that it has."""
        calls = (replace(c, modes=tuple(self._modes(plan, c))) for c in plan.problem.calls)
        # equal tasks take unequal times now
        return replace(plan.problem, calls=tuple(replace(call, task="") for call in calls))

    def _modes(self, plan: Plan, call: ScheduledCall) -> Iterator[Mode]:
        chosen = plan.schedule.mode_of(plan.problem, call.name)
        given_s, ratio = self.times_s.get(call.name), 1.0
        if given_s is not None and chosen.latency_s:
            ratio = given_s / chosen.latency_s
        for mode in call.modes:
            usual_s = max(mode.high_s, mode.latency_s) if self.upper else mode.latency_s
            seconds = usual_s if given_s is None else mode.latency_s * ratio
            seconds *= self.slower.get(mode.device, 1.0)
            yield replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)


def simulate_plan(path: Path, otherwise: Otherwise, out: Path | None = None) -> ScheduleResult:
    """What a plan takes with other times; its modes, cores and orders stay. With `out` a trace of
    both and a page are written there.

    Raises ModelError for what is no plan, or for times of calls or devices that it has not.
    """
    plan = read_plan(path)
    problem = plan.problem
    for kind, given, known in (
        ("call", otherwise.times_s, problem.numbers),
        ("device", otherwise.slower, problem.device),
    ):
        for name in given:
            if name not in known:
                raise ModelError(f"the plan has no {kind} {name!r}. {close_matches(name, known)}")

    really = otherwise.problem(plan)
    moved = simulate(really, plan.schedule, slowdown=slowdown_of(really, plan.schedule))
    least = min(bound(really), moved.objective)
    as_run = run_as(plan.networks, problem)
    found = answered(really, replace(moved, bound=least, solve_s=0.0), as_run)
    found = replace(found, result=plan.told(found.result))
    if out is not None:
        planned = answered(problem, plan.schedule, as_run).result
        write_pictures(out, found, {"plan": planned, "simulated": found.result})
    return found.result

"""How far the planners of schedules are from the lower bound, and how long they take.

    python benchmarks/scheduling.py [gaps] [--planner NAME]… [--problems 200] [--seconds 10]
    python benchmarks/scheduling.py limits [--planner NAME]… [--problems 2000] [--seconds 0.2]

`gaps`: random problems of `tilewright.testing.schedulers` in three sizes, of every objective, every
third with short memory and a deadline; nothing is measured. Prints a row for each planner and size:
the mean and the median gap, the share of problems that it answered, the mean and the longest time.

`limits`: small ones, each planner with all of them; where a schedule breaks a limit, a wait or the
bound, or is worse than one call after the other, the command says so and ends with 1. A row for
each planner counts its answers, and those of problems with short memory and a deadline.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean, median

from tilewright.plan.scheduling.beside import beside_each_other
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.capacities import ROUNDING
from tilewright.plan.scheduling.faults import faults
from tilewright.plan.scheduling.measures import objective_of
from tilewright.plan.scheduling.parts import NO_LIMITS
from tilewright.plan.scheduling.planning import SCHEDULERS, schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.scheduler import Infeasible, NothingFound
from tilewright.testing.schedulers import random_problem

SIZES = ((7, 3, 1), (60, 8, 10), (480, 16, 50))
"""The most calls and cores, and of how many problems one is of that size."""


def limits(planners: Sequence[str], problems: int, seconds: float) -> int:
    """1 if a schedule breaks something, else 0; a row for each planner."""
    code = 0
    print(f"{'planner':>12} {'answered':>10} {'of limited':>10} {'gave up':>10} {'broken':>10}")
    for planner in planners or SCHEDULERS.names():
        answered, limited, gave_up, broken = 0, 0, 0, 0
        for number in range(problems):
            problem = random_problem(number)
            try:
                wrong = broken_by(planner, problem, seconds)
            except NothingFound:
                gave_up += 1
                continue
            answered, limited = answered + 1, limited + (problem.limits != NO_LIMITS)
            broken += bool(wrong)
            if wrong:
                print(f"{planner}, problem {number}: {wrong}", file=sys.stderr)
        code |= bool(broken)
        print(f"{planner:>12} {answered:>10} {limited:>10} {gave_up:>10} {broken:>10}", flush=True)
    return code


def broken_by(planner: str, problem: SchedulingProblem, seconds: float) -> str:
    """What a planner's schedule breaks; empty where it is sound. Raises NothingFound."""
    try:
        found = SCHEDULERS.named(planner).schedule(problem, seconds)
    except Infeasible as error:
        return f"one call after the other keeps all limits, and it says: {error}"
    wrong = next(faults(problem, found), None)
    if wrong is not None:
        return wrong
    value = objective_of(problem, found)
    if max(bound(problem), found.bound) > value * (1 + ROUNDING):
        return f"it has {value}, less than what is proven"
    with suppress(NothingFound):
        plain = schedule_with("sequential", problem).objective
        slowing = beside_each_other(problem, found).objective
        if slowing > plain * (1 + ROUNDING):
            return f"it has {slowing}, and one call after the other {plain}"
    return ""


def main() -> None:
    """Plan them all and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", choices=("gaps", "limits"), default="gaps")
    parser.add_argument("--planner", action="append", default=[])
    parser.add_argument("--problems", type=int)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    if given.what == "limits":
        sys.exit(limits(given.planner, given.problems or 2000, given.seconds or 0.2))
    given.problems, given.seconds = given.problems or 200, given.seconds or 10.0
    row = "{:>12} {:>6} {:>9} {:>9} {:>9} {:>10} {:>10}"
    print(row.format("planner", "calls", "mean gap", "median", "answered", "mean s", "longest s"))
    for calls, cores, one_of in SIZES:
        problems = [random_problem(n, calls, cores) for n in range(given.problems // one_of)]
        for planner in given.planner or SCHEDULERS.names():
            found = []
            for problem in problems:
                try:
                    found.append(schedule_with(planner, problem, given.seconds))
                except NothingFound:
                    continue
            gaps, times = [each.gap for each in found], [each.solve_s for each in found]
            if not found:
                print(row.format(planner, calls, "", "", "0 %", "", ""))
                continue
            shares = (fmean(gaps), median(gaps), len(found) / len(problems))
            texts = [f"{100 * share:.1f} %" for share in shares]
            print(row.format(planner, calls, *texts, f"{fmean(times):.4f}", f"{max(times):.3f}"))


if __name__ == "__main__":
    main()

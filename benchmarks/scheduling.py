"""How far the planners of schedules are from the lower bound, and how long they take.

    python benchmarks/scheduling.py [--planner NAME]… [--problems 200] [--seconds 10]

Random problems of `tilewright.testing.schedulers` in three sizes, of every objective, every third
with short memory and a deadline; nothing is measured. Prints a row for each planner and size: the
mean and the median gap, the share of problems that it answered, the mean and the longest time.
"""

from __future__ import annotations

import argparse
from statistics import fmean, median

from tilewright.plan.scheduling.planning import SCHEDULERS, schedule_with
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.testing.schedulers import random_problem

SIZES = ((7, 3, 1), (60, 8, 10), (480, 16, 50))
"""The most calls and cores, and of how many problems one is of that size."""


def main() -> None:
    """Plan them all and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--planner", action="append", default=[])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
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

"""Two artifacts of one network, timed in turn in one process.

    python benchmarks/artifacts_in_turn.py FIRST SECOND [--threads N] [--rounds N] [--repeats N]

    first   2.43 ms (2.41 to 2.46)
    second  2.18 ms (2.17 to 2.20)
    first / second  1.114 (1.106 to 1.121)

FIRST and SECOND are folders that `optimize` made of networks with the same inputs. Each round runs
first the one, then the other, `--repeats` times, on the same drawn inputs; a round's time is the
median of its runs. Told are the median of the rounds, in brackets their quartiles, and the same of
the ratio of each round, because the machine may change its speed between rounds. No other program
may run meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from tilewright.deploy.opening import open_artifact
from tilewright.graph.inputs import random_inputs
from tilewright.hardware.device import local_placement
from tilewright.measure.network_timing import network_runner, time_in_turn
from tilewright.measure.networks import NetworkWorker

NAMES = ("first", "second")
ROUNDS, REPEATS, WARM_UP = 12, 20, 2


def rounds_in_turn(
    folders: Mapping[str, Path], threads: int | None, rounds: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds of each round, by name. Raises as `open_artifact`."""
    placement = local_placement(threads)
    opened = {name: open_artifact(folder) for name, folder in folders.items()}
    graph = next(iter(opened.values())).network(placement).model.graph
    inputs = random_inputs(graph, 0)
    ordered = [inputs[port] for port in graph.inputs]
    with NetworkWorker(placement) as worker:
        for name, artifact in opened.items():
            worker.load(name, artifact.folder, list(artifact.manifest.constants))
        runners = {
            name: partial(network_runner(worker, name, ordered), repeats, WARM_UP)
            for name in opened
        }
        taken = time_in_turn(runners, rounds)
    return {name: [median(each) for each in found] for name, found in taken.items()}


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The median and the quartiles around it."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return median(values), low, high


def told(rounds_s: Mapping[str, Sequence[float]]) -> str:
    """What is printed of the rounds of both."""
    lines: list[str] = []
    for name in NAMES:
        middle, low, high = (1e3 * each for each in spread(rounds_s[name]))
        lines.append(f"{name:7} {middle:.3g} ms ({low:.3g} to {high:.3g})")
    ratios = [a / b for a, b in zip(*(rounds_s[name] for name in NAMES), strict=True)]
    middle, low, high = spread(ratios)
    return "\n".join([*lines, f"first / second  {middle:.3f} ({low:.3f} to {high:.3f})"])


def main() -> None:
    """Time both and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds must be 2 or more")
    folders = dict(zip(NAMES, (given.first, given.second), strict=True))
    print(told(rounds_in_turn(folders, given.threads, given.rounds, given.repeats)))


if __name__ == "__main__":
    main()

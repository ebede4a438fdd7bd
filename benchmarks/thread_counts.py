"""The best number of threads from five measurements, on curves that others measured.

    python benchmarks/thread_counts.py --data FOLDER

FOLDER contains cpu_thread_curves_opbench.csv (columns model, machine, threads, time_us). Prints a
row per curve: the numbers that are measured, the fastest of them, and how much slower that number
and all cores are than the best number of the whole curve.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tilewright.insight.studies import best_count, counts_to_measure

Curve = Mapping[int, float]


def read_curves(path: Path) -> dict[str, Curve]:
    """Seconds by number of threads, per network and machine."""
    curves: dict[str, dict[int, float]] = {}
    with path.open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            name = f"{line['model']} on {line['machine']}"
            curves.setdefault(name, {})[int(line["threads"])] = float(line["time_us"]) * 1e-6
    return curves


def loss(curve: Curve, count: int) -> float:
    """How much slower a number of threads is than the best one."""
    return curve[count] / min(curve.values()) - 1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    curves = read_curves(parser.parse_args().data / "cpu_thread_curves_opbench.csv")
    print("| curve | numbers measured | chosen | loss | loss with all cores |")
    print("| --- | --- | --- | --- | --- |")
    losses: list[float] = []
    for name, curve in curves.items():
        counts = [count for count in counts_to_measure(max(curve)) if count in curve]
        picked = best_count({count: curve[count] for count in counts})
        losses.append(loss(curve, picked))
        shown = ", ".join(map(str, counts))
        everything = loss(curve, max(curve))
        print(f"| {name} | {shown} | {picked} | {losses[-1]:.1%} | {everything:.1%} |")
    print(f"\nThe median of the losses is {median(losses):.1%}.")


if __name__ == "__main__":
    main()

"""Write the measured kernels that come with tilewright, from a database that `collect` filled.

    tilewright collect --op conv2d --samples 6500 --budget 30m --db collected.db
    tilewright collect --op depthwise --op dense --samples 1000 --budget 15m --db collected.db
    tilewright collect --op all --samples 350 --budget 20m --db collected.db
    python benchmarks/shipped_kernels.py --db collected.db
    tilewright collect --op all --precision bfloat16 --samples 150 --settings 1 --db halves.db
    python benchmarks/shipped_kernels.py --db halves.db --add

Rows of this machine's device class go to src/tilewright/predict/data; those of a GPU, of a database
that `on_a_card.py store` made, with --target 'cuda -model=H100'. With --add the rows that ship
already stay as they are, and so do the peaks; kernels that are not among them are added.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from tilewright.core.records import Candidate, Measurement, PlacementKey
from tilewright.cost.floors import Peaks, datasheet_peaks
from tilewright.measure.targeting import placement_of
from tilewright.predict.collected import family_of, rows_of, shipped_data, usable, write_rows
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

DATA = Path(__file__).parent.parent / "src" / "tilewright" / "predict" / "data"
LEAST_REPEATS = 10


def repeats_of(store: SqliteStore, placement: PlacementKey) -> float | None:
    """How far 90 % of the times of the kernel that `collect` repeats lie from their median, in the
    logarithm; None where it was not repeated."""
    times: dict[tuple[str, Candidate], list[float]] = {}
    for found in store.stored_measurements(placement=placement):
        times.setdefault((found.workload_key, found.candidate), []).append(found.latency_s)
    most = max(times.values(), key=len)
    if len(most) < LEAST_REPEATS:
        return None
    away = np.abs(np.log(np.array(most) / np.median(most)))
    return round(float(np.quantile(away, 0.9)), 3)


def of_one_meter(found: Sequence[Measurement]) -> list[Measurement]:
    """The same with the energies of one machine only, the one that metered most: H100s that
    took the same times drew powers a tenth apart."""
    metered = Counter(one.instance for one in found if one.energy is not None)
    most = max(metered, key=lambda name: metered[name], default="")
    return [one if one.instance == most else replace(one, energy=None) for one in found]


def spanning(*days: tuple[str, str] | None) -> tuple[str, str] | None:
    """The first and the last of all days."""
    every = [day for pair in days if pair is not None for day in pair]
    return (min(every), max(every)) if every else None


def main() -> None:
    """Write the rows and say how many of each family there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--add", action="store_true")
    arguments = parser.parse_args()
    placement = placement_of(arguments.target, None, arguments.threads)
    with open_store(arguments.db) as store:
        workloads = {workload.key: workload for workload in store.workloads()}
        found = rows_of(of_one_meter(store.stored_measurements(placement=placement.key)), workloads)
        peaks = datasheet_peaks(placement.target) or Peaks(
            **{p.name: store.peak(placement.key, p.name) or 0.0 for p in fields(Peaks)}
        )
        days = store.measured_days(placement.key)
        repeats = repeats_of(store, placement.key)
    if arguments.add:
        (before,) = (each for each in shipped_data() if each.placement.key == placement.key)
        there = {(row.workload.text, row.candidate) for row in before.rows}
        new = [row for row in found if (row.workload.text, row.candidate) not in there]
        found = [*before.rows, *new]
        peaks, repeats = before.peaks, before.repeats
        days = spanning(before.measured, days)
    rows, left_out = usable(found, placement)
    print(left_out)
    DATA.mkdir(exist_ok=True)
    write_rows(DATA / f"{placement.key}.parquet", rows, placement, peaks, days, repeats)
    metered = Counter(family_of(row.workload) for row in rows if row.energy_j is not None)
    for family, count in Counter(family_of(row.workload) for row in rows).most_common():
        print(f"{family:16} {count:6} {metered[family]:6} with energy")


if __name__ == "__main__":
    main()

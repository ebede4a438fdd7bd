"""Predictions for a new device class that are corrected by a few samples, random or informative.

    python benchmarks/new_devices.py --db FILE… [--family conv2d] [--seeds 5] [--least 200]

Every device class in the databases, and every one whose kernels ship with tilewright, is predicted
by the other shipped ones, as `predict` does on a new device. Samples are drawn at random or chosen
to be informative, several times each. Both ways are judged on the same kernels: those of
configurations that neither of them sampled. Nothing is timed. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from pages import table
from tilewright.core.errors import UsageError
from tilewright.core.events import discard
from tilewright.core.records import PlacementKey
from tilewright.hardware.device import local_placement
from tilewright.insight.evaluating import Lenders, Samples, classes_of
from tilewright.predict.collected import family_of, shipped_data
from tilewright.predict.modelling import Predictors, predictors_of
from tilewright.store import open_store

COUNTS = (0, 10, 20, 50, 100)
LEAST_JUDGED = 20
HEADER = (
    "new class", "kernels", "nearest class", "samples", "random samples: mean error",
    "median error", "informative samples: mean error", "median error",
)  # fmt: skip


def known_classes(databases: Sequence[Path], family: str, least: int) -> list[Predictors]:
    """Those with enough kernels of the family, the one with most rows of each class."""
    found: dict[PlacementKey, Predictors] = {}
    for database in databases:
        with open_store(database) as store:
            for one in classes_of(predictors_of(local_placement(), store, discard)):
                key = one.placement.key
                count = sum(family_of(row.workload) == family for row in one.rows)
                if count >= least and (key not in found or count > len(found[key].rows)):
                    _ = one.peaks
                    found[key] = one
    return list(found.values())


def errors_of(
    lenders: Lenders, one: Predictors, count: int, seed: int
) -> dict[bool, tuple[float, float]] | None:
    """Mean and median relative error without and with `informed` samples; None where too little is
    left to judge."""
    asked = one.training_set(lenders.family)
    try:
        taken = {
            informed: lenders.choose(one, Samples(count=count, seed=seed, informed=informed))
            for informed in (False, True)
        }
    except UsageError:
        return None
    sampled = asked.configurations[np.concatenate([*taken.values()])]
    judged = asked.part(np.flatnonzero(~np.isin(asked.configurations, sampled)))
    if len(judged) < LEAST_JUDGED:
        return None
    found: dict[bool, tuple[float, float]] = {}
    for informed, rows in taken.items():
        said = lenders.answering(one, rows)[1].predict(judged.features)
        errors = np.abs(said.predicted / judged.target - 1)
        found[informed] = (float(errors.mean()), float(np.median(errors)))
    return found


def rows_of(one: Predictors, lenders: Lenders, seeds: int) -> Iterator[tuple[str, ...]]:
    """A class in the table."""
    data = one.training_set(lenders.family)
    kernels = f"{len(data)} of {len(np.unique(data.configurations))} configurations"
    place = lenders.nearest(one, one.learnt_rows(lenders.family))
    for count in COUNTS:
        draws = [errors_of(lenders, one, count, seed) for seed in range(seeds if count else 1)]
        known = [draw for draw in draws if draw is not None]
        if not known:
            continue
        shown = [
            f"{100 * fmean(draw[informed][part] for draw in known):.1f} %"
            for informed in (False, True)
            for part in (0, 1)
        ]
        head = (str(one.placement.key), kernels, str(lenders.classes[place].placement.key))
        yield (*(("", "", "") if count else head), str(count), *shown)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, nargs="+", required=True)
    parser.add_argument("--family", default="conv2d")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--least", type=int, default=100, help="least number of kernels of a class")
    arguments = parser.parse_args()
    known = known_classes(arguments.db, arguments.family, arguments.least)
    came = {shipped.placement.key for shipped in shipped_data()}
    lines: list[tuple[str, ...]] = []
    for one in known:
        others = [other for other in known if other is not one and other.placement.key in came]
        lenders = Lenders(classes=others, family=arguments.family)
        lines += rows_of(one, lenders, arguments.seeds)
    print(table(HEADER, lines))


if __name__ == "__main__":
    main()

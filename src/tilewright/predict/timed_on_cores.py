"""Kernels that were timed on several numbers of cores, as they come with the package, and the model
of their curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from tilewright.core.codec import digest
from tilewright.core.targets import Target
from tilewright.predict.base import Features, Floats, Integers
from tilewright.predict.collected import Row, kernels_of, read_rows, row_fields
from tilewright.predict.core_curves import FAMILY, MODEL, CurveTable
from tilewright.predict.family_models import FamilyModel, TrainingSet, fit_model
from tilewright.predict.modelling import Predictors
from tilewright.predict.regressors import Trees

FILE = Path(__file__).parent / "curves" / "cores.parquet"
"""What comes along: `python benchmarks/core_curves.py fit` writes it."""

TREES = Trees(rounds=300, rate=0.05, depth=5, least_weight=0.5, column_share=0.8, members=6)


@dataclass(frozen=True, kw_only=True)
class TimedOnCores:
    """A kernel that is made for `cores` of them and was timed on as many, on a machine that has
    `machine` cores, with second-level caches of `l2_bytes` each. `alone_s` is what the kernel that
    is made for one core takes there."""

    row: Row
    cores: int
    machine: int
    l2_bytes: int
    alone_s: float

    def on(self, target: Target) -> Target:
        """The target with the cores and the second-level caches of the machine."""
        levels = [
            replace(level, bytes=self.l2_bytes) if number == 1 else level
            for number, level in enumerate(target.memory)
        ]
        return replace(target, cores=self.machine, memory=tuple(levels))


def write_timed(path: Path, rows: Sequence[TimedOnCores]) -> None:
    """Write a file that `read_timed` reads."""
    import polars

    table = polars.DataFrame(
        [
            {
                **row_fields(one.row),
                "cores": one.cores,
                "machine": one.machine,
                "l2_bytes": one.l2_bytes,
                "alone_s": one.alone_s,
            }
            for one in rows
        ]
    ).drop("energy_j")
    table.write_parquet(path, compression="zstd", compression_level=19)


def read_timed(path: Path) -> list[TimedOnCores]:
    """The kernels in a file. Raises ModelError for a file that is something else."""
    import polars

    rows = read_rows(path)
    beside = polars.read_parquet(path, columns=["cores", "machine", "l2_bytes", "alone_s"])
    return [
        TimedOnCores(row=row, **told)
        for row, told in zip(rows, beside.iter_rows(named=True), strict=True)
    ]


def curve_set(rows: Sequence[TimedOnCores], target: Target) -> TrainingSet:
    """What a model of curves learns from: the target, of which vectors count, is that of any of the
    machines."""
    groups = np.array([(one.machine, one.l2_bytes, one.cores) for one in rows])
    alone_s = np.array([one.alone_s for one in rows])
    distinct, inner = np.unique(groups, axis=0, return_inverse=True)
    inner = inner.ravel()
    parts: list[Features] = []
    for number, (_, _, cores) in enumerate(distinct.tolist()):
        mine = np.flatnonzero(inner == number)
        kernels = kernels_of([rows[n].row for n in mine.tolist()])
        table = CurveTable(kernels=kernels, target=rows[int(mine[0])].on(target))
        parts.append(table.features(alone_s[mine], cores))
    keys = [one.row.workload.key for one in rows]
    return TrainingSet(
        family=FAMILY,
        features=_together(parts, np.argsort(inner, kind="stable")),
        target=np.array([one.row.latency_s for one in rows]),
        configurations=np.unique(keys, return_inverse=True)[1].ravel().astype(np.int64),
        groups=np.array([f"{one.machine} {one.l2_bytes}" for one in rows], dtype=object),
        device_class=FAMILY,
        data_hash=digest("\n".join(keys)),
    )


def _together(parts: Sequence[Features], places: Integers) -> Features:
    """Features of all parts, whose rows belong to `places`; no part knows the families of all."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    values = np.concatenate([part.aligned(names) for part in parts])
    back = np.argsort(places)
    scale: Floats = np.concatenate([part.scale for part in parts])
    return Features(names=names, values=np.nan_to_num(values[back]), scale=scale[back])


def learnt(rows: Sequence[TimedOnCores], target: Target, trees: Trees = TREES) -> FamilyModel:
    """The model of the curves of kernels."""
    return fit_model(curve_set(rows, target), trees)


@cache
def _file_hash() -> str:
    return digest(FILE.read_bytes())


def curve_model(predictors: Predictors) -> FamilyModel:
    """The model of the curves that came along, kept where predictors keep theirs. It is the same
    for all numbers of cores of a processor."""
    target = replace(predictors.placement.target, cores=1)

    def learn() -> FamilyModel:
        return learnt(read_timed(FILE), target)

    model = predictors.kept(f"{FAMILY}-{MODEL}", f"{_file_hash()} {target}", learn)
    own = str(predictors.placement.key)
    return replace(model, device_class=own, origin=own)

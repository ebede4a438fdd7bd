"""Measured kernels in a database, and a model that learnt from them."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from helpers.fakes.levels import convolution, relu
from helpers.fakes.measuring import PLACEMENT, measured
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.cost.floors import Peaks
from tilewright.graph.workload import Workload
from tilewright.kernels.spaces import spaces
from tilewright.predict.collected import Row, training_set
from tilewright.predict.family_models import FamilyModel, fit_kernels
from tilewright.predict.regressors import Trees
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

PEAKS = Peaks(flop_per_s=1e11, bytes_per_s=1e10, cache_bytes_per_s=5e10)
SMALL = Trees(rounds=30, depth=4, rate=0.2, least_weight=1.0, members=3)


def rows_of_convolutions() -> list[Row]:
    """Convolutions in several settings, a time for each."""
    return [
        Row(workload=w, candidate=c, latency_s=1e-5 + w.flop / 5e10 * (1 + n % 3))
        for w in (convolution(channels=c, filters=f) for c in (16, 32, 64) for f in (16, 48))
        for n, c in enumerate(_candidates(w))
    ]


def _candidates(workload: Workload) -> list[Candidate]:
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    space = spaces(workload, forms, PLACEMENT)[0]
    picked = np.linspace(0, len(space.numbers) - 1, 10).astype(int)
    return [space.part.candidate(int(number)) for number in space.numbers[picked]]


@cache
def fitted() -> FamilyModel:
    """A model of those rows."""
    data = training_set(rows_of_convolutions(), "conv2d", PLACEMENT, PEAKS)
    return fit_kernels(data, trees=SMALL)


def known_store(path: Path) -> SqliteStore:
    """A database with those rows, one of another family, and the device's peaks."""
    store = open_store(path)
    rows = rows_of_convolutions()
    elementwise = relu()
    store.add_workloads([*{row.workload for row in rows}, elementwise])
    store.add([measured(row.workload, row.candidate, row.latency_s) for row in rows])
    store.add([measured(elementwise, _candidates(elementwise)[0], 1e-6)])
    for name, value in asdict(PEAKS).items():
        store.add_peak(PLACEMENT.key, name, value)
    return store

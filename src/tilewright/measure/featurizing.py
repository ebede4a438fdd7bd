"""Features of lowered kernels for tuners, each made once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.measure.base import Measurer


class WorkloadFeaturizer:
    """Makes features of one workload's candidates; a `search.tuners.base.Featurizer`.

    Rows are kept, so that a tuner may ask for the same candidate as often as it likes. What a
    crash or a timeout of a worker took is not asked for again: its row stays nan.
    """

    def __init__(self, measurer: Measurer, workload: Workload) -> None:
        self._measurer = measurer
        self._workload = workload
        self._rows: dict[tuple[str, Candidate], npt.NDArray[np.float64]] = {}

    def __call__(self, kind: str, candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        """One row per candidate, nan for those that do not lower; KeyError for unknown kinds."""
        missing = [c for c in dict.fromkeys(candidates) if (kind, c) not in self._rows]
        made = self._measurer.features(self._workload, missing, kind)
        for candidate, row in zip(missing, made, strict=True):
            self._rows[kind, candidate] = row
        rows = [self._rows[kind, candidate] for candidate in candidates]
        return np.array(rows).reshape(len(rows), made.shape[1])

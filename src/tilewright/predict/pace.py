"""How fast a machine is beside the one of its class whose kernels came along.

Machines of one class are not equally fast: clocks, memory and neighbours on a shared host differ.
Where a machine has measured some kernels of a family, their times over those that the shipped rows'
model gives have a common factor, and what the shipped rows say is moved by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.records import Placement
from tilewright.predict.collected import Row
from tilewright.predict.kernel_facts import kernel_table
from tilewright.predict.kernel_models import KernelModel

LEAST_ROWS, LEAST_OPERATORS = 20, 5
"""Fewer rows, or of fewer operators, say nothing of a machine."""
_MOST = 200
_ALIKE = 0.03
"""A factor nearer to 1 than this is none."""


def enough(rows: Sequence[Row]) -> bool:
    """Whether rows of one family can tell a machine's pace."""
    return len(rows) >= LEAST_ROWS and len({row.workload.key for row in rows}) >= LEAST_OPERATORS


def pace(
    rows: Sequence[Row], model: KernelModel, placement: Placement, peaks: Mapping[str, float]
) -> float:
    """The median of measured over predicted times, each operator counting once; 1 where rows are
    too few or the factor is too near to 1 to be told from it.

    `rows` are this machine's, of the model's family, `peaks` those that the model learnt with. Of
    many rows 200 are asked about, spread over all.
    """
    if not enough(rows):
        return 1.0
    asked = [rows[int(n)] for n in np.linspace(0, len(rows) - 1, min(len(rows), _MOST)).round()]
    table = kernel_table([(row.workload, row.candidate) for row in asked], placement, peaks)
    logs = np.log([row.latency_s for row in asked]) - np.log(model.times(table).latency_s)
    operators: dict[str, list[float]] = {}
    for row, log in zip(asked, logs, strict=True):
        operators.setdefault(row.workload.key, []).append(float(log))
    common = float(np.median([np.median(found) for found in operators.values()]))
    return float(np.exp(common)) if abs(common) >= _ALIKE else 1.0

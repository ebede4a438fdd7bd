"""`store`: TVM's features per stored buffer, brought to a fixed width.

The layout of the row is in docs/reference/features.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.features.nests import Floats

PER_STORE = 164
WIDTH = 1 + 2 * PER_STORE
_EXECUTIONS = 161
_ARITHMETIC = slice(0, 16)
_AS_THEY_ARE = np.array(
    [
        *(16 + 11 * loops + place for loops in range(3) for place in range(3, 11)),
        49,
        *(57 + 18 * buffer + place for buffer in range(5) for place in (0, 1, 2, 7, 8, 9)),
    ]
)
"""Columns with 0 and 1; all others are log2(1 + x)."""


def store_features(module: Any, target: str) -> Floats:
    """One row: how many buffers are stored to, sums over them, and the one with most work."""
    return reduced(_per_store(module, target))


def reduced(rows: Floats) -> Floats:
    """Rows of stored buffers as one row; sums are taken before the logarithm."""
    if not len(rows):
        return np.zeros(WIDTH)
    linear = np.exp2(rows) - 1.0
    linear[:, _AS_THEY_ARE] = rows[:, _AS_THEY_ARE]
    sums = linear.sum(axis=0)
    scaled = np.log2(1.0 + sums)
    scaled[_AS_THEY_ARE] = sums[_AS_THEY_ARE]
    work = linear[:, _ARITHMETIC].sum(axis=1) + linear[:, _EXECUTIONS]
    return np.concatenate([[float(len(rows))], scaled, rows[int(np.argmax(work))]])


def _per_store(module: Any, target: str) -> Floats:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule import _ffi_api

    # not ms.TuneContext(...): that imports the instructions of all devices, ten seconds and more
    context = _ffi_api.TuneContext(
        module, tvm.target.Target(target), None, None, "features", 1, 1, None
    )
    candidate = ms.MeasureCandidate(Schedule(module), [])
    (rows,) = ms.feature_extractor.PerStoreFeature().extract_from(context, [candidate])
    return rows.numpy().astype(np.float64)

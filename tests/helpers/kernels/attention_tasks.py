"""Attention tasks, and their kernels against numpy."""

from __future__ import annotations

import numpy as np

from helpers.kernels.one_kernel import all_settings, random_arrays, run_kernel, step, workload
from tilewright.graph.evaluate import magnitude, run_workload
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.testing.implementations import plain


def attention(*shapes, heads: int, key_heads: int = 0, **named) -> Workload:
    usual = {"scale": 0.3, "causal": False, "fill": "-inf"}
    anchor = step(
        "attention",
        *range(len(shapes)),
        heads=heads,
        key_heads=key_heads or heads,
        **{**usual, **named},
    )
    return workload(shapes, anchor)


def check_attention(name: str, task: Workload, arrays=None, choice: int | None = None) -> None:
    """The kernel in the setting with the best estimate, or in one of eight of all of them."""
    arrays = random_arrays(task) if arrays is None else arrays
    found = all_settings(task, name, plain(task))
    chosen = None if choice is None else found[choice * (len(found) - 1) // 7]
    result = run_kernel(task, name, arrays, settings=chosen)
    with np.errstate(invalid="ignore"):
        expected = run_workload(task, arrays)
        error = np.abs(result - expected) / magnitude(task, arrays)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    assert np.nanmax(error) < implementation(name).error_bound(task)

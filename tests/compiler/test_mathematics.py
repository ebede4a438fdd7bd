"""The polynomial functions: accuracy over the whole range, NaN and infinities as in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.one_kernel import run_kernel, step, workload
from tilewright.graph.operators import OPERATORS

SPECIAL = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1e-38,
    -1e-38,
    3e38,
    -3e38,
    88.5,
    89.0,
    -87.0,
    -104.0,
]
NAMES = ("exp", "tanh", "erf", "sigmoid", "log", "softplus", "gelu", "silu", "elu", "selu", "celu")
NAMED = {"elu": {"alpha": 1.3}, "celu": {"alpha": 1.3}, "selu": {"alpha": 1.67, "gamma": 1.05}}


def samples() -> np.ndarray:
    rng = np.random.default_rng(3)
    wide = np.linspace(-95, 95, 4001)
    near = np.linspace(-1.5, 1.5, 4001)
    tiny = rng.standard_normal(500) * 1e-3
    return np.concatenate([SPECIAL, wide, near, tiny]).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_function_matches_a_double_precision_reference(name: str) -> None:
    named = NAMED.get(name, {})
    x = samples()
    task = workload([x.shape], step(name, 0, **named))
    found = run_kernel(task, "injective", [x]).astype(np.float64)
    exact = OPERATORS[name].reference((x.astype(np.float64),), named)
    beyond = np.abs(exact) > np.finfo(np.float32).max
    exact[beyond] = np.sign(exact[beyond]) * np.inf
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(exact))
    finite = np.isfinite(exact)
    scale = np.abs(exact[finite])
    if name in ("gelu", "silu", "softplus"):
        scale = np.maximum(scale, np.abs(x[finite]))
    if name in ("exp", "sigmoid", "softplus"):
        scale = np.maximum(scale, 1e-36)
    if name == "softplus":
        scale = np.maximum(scale, 1.0)
    error = np.abs(found[finite] - exact[finite])
    assert (error <= 2e-6 * scale + 1.2e-38).all(), error.max()


def test_large_arguments_give_exactly_one() -> None:
    x = np.concatenate([np.linspace(9.1, 30, 5000), [1e30]]).astype(np.float32)
    x = np.concatenate([x, -x])
    for name in ("tanh", "erf"):
        found = run_kernel(workload([x.shape], step(name, 0)), "injective", [x])
        np.testing.assert_array_equal(found, np.sign(x))
    gelu = run_kernel(workload([x.shape], step("gelu", 0)), "injective", [x])
    np.testing.assert_array_equal(gelu, np.maximum(x, 0))


def test_small_arguments_keep_their_relative_accuracy() -> None:
    x = np.array([1e-6, -1e-6, 1e-4, -1e-4, 3e-3], np.float32)
    for name, named in (("tanh", {}), ("erf", {}), ("elu", {"alpha": 1.0})):
        found = run_kernel(workload([x.shape], step(name, 0, **named)), "injective", [x])
        exact = OPERATORS[name].reference((x.astype(np.float64),), named)
        np.testing.assert_allclose(found, exact, rtol=1e-6)

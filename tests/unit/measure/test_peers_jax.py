"""JAX against numpy, operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.networks.operator_cases import CASES, Case
from tilewright.graph.network import Array
from tilewright.graph.operators import OPERATORS

jax = pytest.importorskip("jax", reason="jax is no dependency and not installed")

from tilewright.measure.peers.jax_operators import jax_call  # noqa: E402

RANDOM = np.random.default_rng(11)


@pytest.fixture(scope="module", autouse=True)
def wide() -> None:
    jax.config.update("jax_enable_x64", True)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def check(operator: str, arrays: list[Any], named: dict[str, Any]) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray(OPERATORS[operator].reference(tuple(arrays), named))
    found = np.asarray(jax.jit(jax_call(operator, named))(*arrays))
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_operator_means_the_same(case: Case) -> None:
    operator, shapes, named = case
    check(operator, [normal(*shape) for shape in shapes], named)


def test_indices_count_from_the_end_and_rows_outside_a_cache_are_dropped() -> None:
    check("gather", [normal(3, 5, 2), np.array([[0, -1], [2, 4]])], {"axis": 1})
    taps = [normal(3, 5, 2), np.array([[0, 1, 4], [2, 4, 4]], np.int32), normal(2, 3)]
    check("interpolate", taps, {"axis": 1})
    for place in (-1, 1, 3):
        rows = [normal(2, 4, 3), normal(2, 2, 3), np.array([place])]
        check("cache_write", rows, {"axis": 1})


def test_integers_are_shifted_and_divided_as_in_c() -> None:
    whole = np.array([[-7], [1], [2**31 - 1]], np.int32)
    for operator in ("shift_left", "shift_right"):
        check(operator, [whole, np.array([-1, 0, 3, 31, 32], np.int32)], {})
    check("divide", [whole, np.array([-2, 3], np.int32)], {})
    check("divide", [normal(3, 4), normal(4)], {})
    boolean = np.array([[[[True, False, True, True, False, True]]]])
    parts = [normal(2, 5, 12), normal(2, 6, 6), normal(2, 6, 10), boolean]
    heads = {"heads": 4, "key_heads": 2, "scale": 0.4, "causal": False, "fill": "-inf"}
    check("attention", parts, heads)


def test_what_jax_has_no_call_for_is_named() -> None:
    with pytest.raises(NotImplementedError, match="operator opaque"):
        jax_call("opaque", {})

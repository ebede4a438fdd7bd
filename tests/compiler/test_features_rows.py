"""Rows of features: their layout, their width, and what does not lower."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from helpers.kernels.nests import CONV, SETTINGS, conv_nests, product
from helpers.kernels.one_kernel import PLACEMENT, all_settings, step, workload
from tilewright.compiler.build import kernel_module
from tilewright.compiler.features.kinds import (
    PER_STORE,
    SAMPLES,
    SLOTS,
    STEP,
    WIDTHS,
    curve_features,
    itervar_features,
    reduced,
)
from tilewright.compiler.features.loops import kernel_features, loop_nests
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.registry import implementation
from tilewright.measure.kernels import KernelMeasurer

LOOP_COLUMNS = 25
RELU = workload([(64, 128)], step("relu", 0))
SOFTMAX = workload([(64, 100)], step("softmax", 0, axis=1))
KINDS = sorted(WIDTHS)


def conv_candidate(**changed) -> Candidate:
    return Candidate(
        implementation="conv2d_direct",
        settings=tuple({**SETTINGS, **changed}.items()),
        forms=(blocked(8), PLAIN, PLAIN, blocked(8)),
    )


def some_candidate(task: Workload, name: str) -> Candidate:
    forms = (PLAIN,) * (len(task.arguments) + 1)
    chosen = all_settings(task, name, forms)[0]
    return Candidate(implementation=name, settings=tuple(chosen.items()), forms=forms)


def main_loops(row: np.ndarray) -> np.ndarray:
    """The loops of the nest with most work, innermost first."""
    return row[5 : 5 + SLOTS[0] * LOOP_COLUMNS].reshape(SLOTS[0], LOOP_COLUMNS)


def test_itervar_of_a_known_nest() -> None:
    row = itervar_features(loop_nests(product))
    assert row.shape == (WIDTHS["itervar"],)
    np.testing.assert_allclose(row[:5], np.log2([193, 2, 2, 1, 1]))
    lanes, k, outer, *absent = main_loops(row)
    assert not np.any(absent) and not row[5 + SLOTS[0] * LOOP_COLUMNS :].any()
    # length, level, topdown, bottomup; serial, parallel, vectorized, unrolled, bound
    np.testing.assert_allclose(lanes[:9], [np.log2(9), 3, np.log2(193), np.log2(9), 0, 0, 1, 0, 0])
    np.testing.assert_allclose(k[:9], [np.log2(7), 2, np.log2(25), np.log2(49), 1, 0, 0, 0, 0])
    np.testing.assert_allclose(outer[:9], [np.log2(5), 1, np.log2(5), np.log2(193), 0, 1, 0, 0, 0])
    # stride, run, count, reuse of c, a and b along the outer loop; there is no fourth
    touches = np.exp2(outer[9:]).reshape(4, 4) - 1
    np.testing.assert_allclose(
        touches, [[8, 4, 32, 6], [12, 4, 48, 4], [0, 4, 24, 8], [0] * 4], atol=1e-9
    )
    # and along the vector: two rows of a, each for four lanes
    np.testing.assert_allclose(
        np.exp2(lanes[9:]).reshape(4, 4)[:3] - 1, [[1, 8, 8, 1], [6, 4, 2, 4], [1, 4, 4, 2]]
    )


def test_itervar_of_a_convolution() -> None:
    row = itervar_features(conv_nests())
    lengths = np.exp2(main_loops(row)[:, 0]) - 1
    np.testing.assert_allclose(lengths, [8, 1, 2, 3, 8, 3, 3, 4, 7, 20, 0, 0], atol=1e-9)
    topdown = np.exp2(main_loops(row)[:, 2]) - 1
    np.testing.assert_allclose(topdown[9::-1], np.cumprod([20, 7, 4, 3, 3, 8, 3, 2, 1, 8]))
    # loops shared with the first nest are not repeated by the next ones
    second = row[5 + SLOTS[0] * LOOP_COLUMNS :][5 : 5 + SLOTS[1] * LOOP_COLUMNS]
    lengths = np.exp2(second.reshape(SLOTS[1], LOOP_COLUMNS)[:, 0]) - 1
    np.testing.assert_allclose(lengths, [8, 16, 68, 0, 0, 0], atol=1e-9)


def test_curve_of_a_known_nest() -> None:
    written, first, second, absent = curve_features(loop_nests(product)).reshape(4, 4, SAMPLES)
    at = np.arange(SAMPLES) * STEP
    assert not absent.any()
    # a has 48 elements, b 24: the larger comes first
    reuse_of_count, count_of_reuse, topdown_of_count, count_of_topdown = first
    assert reuse_of_count[-1] == pytest.approx(2) and count_of_reuse[-1] == pytest.approx(
        np.log2(48)
    )
    assert second[1][-1] == pytest.approx(np.log2(24))
    # each element of c is reached 6 times, as soon as a vector of 8 is
    np.testing.assert_allclose(written[0], np.interp(at, [0, 3, 5], [0, np.log2(6), np.log2(6)]))
    total = np.log2(192)
    assert topdown_of_count[0] == pytest.approx(total) and topdown_of_count[-1] == 0
    assert count_of_topdown[0] == pytest.approx(np.log2(48)) and count_of_topdown[-1] == 0


def test_store_rows_are_summed_before_the_logarithm() -> None:
    rows = np.zeros((3, PER_STORE))
    rows[:, 0] = np.log2([4, 6, 1])
    rows[:, 26] = 1.0
    rows[1, 161] = 3.0
    row = reduced(rows)
    assert row.shape == (WIDTHS["store"],) and row[0] == 3
    assert row[1] == pytest.approx(np.log2(1 + 3 + 5)) and row[1 + 26] == 3
    np.testing.assert_array_equal(row[1 + PER_STORE :], rows[1])
    assert not reduced(np.zeros((0, PER_STORE))).any()


@pytest.mark.parametrize("kind", KINDS)
def test_every_implementation_has_the_same_width(kind: str) -> None:
    tasks = [(RELU, "injective"), (RELU, "generic"), (SOFTMAX, "rows"), (SOFTMAX, "generic")]
    candidates = [(task, some_candidate(task, name)) for task, name in tasks]
    candidates += [(CONV, conv_candidate()), (CONV, some_candidate(CONV, "conv2d_winograd"))]
    assert implementation("conv2d_winograd").applies(CONV, PLACEMENT.target, PLACEMENT.resources)
    rows = []
    for task, candidate in candidates:
        made = [
            kernel_features(
                kernel_module(task, candidate, PLACEMENT.target, PLACEMENT.resources),
                PLACEMENT.tvm_target,
                kind,
            )
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*made)
        rows.append(made[0])
    assert {row.shape for row in rows} == {(WIDTHS[kind],)}
    assert np.isfinite(rows).all() and all(row.any() for row in rows)


IN_ALL_KINDS = [{"tile_width": 7}, {"tile_out": 2}, {"cache_chunks": 2}]
NOT_IN_CURVE = [{"unroll": "kx"}, {"order": "channels"}, {"padding": "piece"}]


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        *((kind, changed) for kind in KINDS for changed in IN_ALL_KINDS),
        *((kind, changed) for kind in ("itervar", "store") for changed in NOT_IN_CURVE),
    ],
    ids=str,
)
def test_a_knob_changes_the_row(kind: str, changed: dict) -> None:
    one, other = (
        kernel_features(
            kernel_module(CONV, c, PLACEMENT.target, PLACEMENT.resources),
            PLACEMENT.tvm_target,
            kind,
        )
        for c in (conv_candidate(), conv_candidate(**changed))
    )
    assert not np.array_equal(one, other)


@pytest.fixture(scope="module")
def measurer() -> Iterator[KernelMeasurer]:
    with KernelMeasurer(local_placement(2)) as found:
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_lower_is_nan(measurer: KernelMeasurer, kind: str) -> None:
    broken = conv_candidate(reduce_order="nothing")
    candidates = [conv_candidate(), broken, conv_candidate(tile_width=7)]
    rows = measurer.features(CONV, candidates, kind)
    assert rows.shape == (3, WIDTHS[kind]) and rows.dtype == np.float64
    assert np.isnan(rows[1]).all() and np.isfinite(rows[[0, 2]]).all()
    # the worker says what this process finds
    here = kernel_features(
        kernel_module(CONV, candidates[2], measurer.placement.target, measurer.placement.resources),
        measurer.placement.tvm_target,
        kind,
    )
    np.testing.assert_array_equal(rows[2], here)
    assert measurer.features(CONV, [], kind).shape == (0, WIDTHS[kind])


def test_unknown_kinds_are_refused(measurer: KernelMeasurer) -> None:
    with pytest.raises(KeyError):
        measurer.features(CONV, [conv_candidate()], "knobs")

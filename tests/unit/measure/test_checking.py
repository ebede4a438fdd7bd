"""Errors of kernels and of networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.levels import BLOCKED, DIRECT, NumpyMeasurer, convolution
from helpers.fakes.measuring import failed
from tilewright.core.forms import PLAIN, stored_in
from tilewright.core.records import Candidate, Failure
from tilewright.graph.arrange import copying
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import Array, TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure.base import Measurer
from tilewright.measure.checking import (
    check_kernel,
    compare_outputs,
    compare_runs,
    relative_error,
    sample_arguments,
    stored_as,
    worst_run,
)
from tilewright.testing.implementations import single


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def error(result: np.ndarray, reference: np.ndarray, scale: float = 1.0) -> float:
    return relative_error(result, reference, np.full(reference.shape, scale))


def test_relative_to_the_scale() -> None:
    assert error(f32(1.0, 2.5), f32(1.0, 2.0), 10.0) == pytest.approx(0.05)
    assert error(f32(1.0), f32(1.0)) == 0.0


def test_a_reference_above_the_scale_is_the_scale() -> None:
    assert error(f32(11.0), f32(10.0), 1.0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("result", "reference", "same"),
    [
        (f32(nan), f32(nan), True),
        (f32(inf), f32(inf), True),
        (f32(-inf), f32(inf), False),
        (f32(nan), f32(inf), False),
        (f32(nan), f32(1.0), False),
        (f32(inf), f32(1.0), False),
        (f32(1.0), f32(nan), False),
        (f32(nan, 1.0), f32(nan, 1.0), True),
        (f32(1.0, nan), f32(nan, 1.0), False),
    ],
)
def test_nan_and_infinities_must_be_in_the_same_places(result, reference, same: bool) -> None:
    assert error(result, reference) == (0.0 if same else inf)


def test_shapes_must_agree() -> None:
    assert error(f32(1.0, 1.0), f32(1.0)) == inf
    assert error(np.ones((1, 2)), np.ones(2)) == inf


def test_other_types_and_empty_arrays() -> None:
    assert error(np.array([True, False]), np.array([True, False])) == 0.0
    assert error(np.array([True, True]), np.array([True, False])) == 1.0
    assert error(np.array([3]), np.array([4])) == 0.25
    assert error(f32(), f32()) == 0.0
    assert relative_error(np.float32(1.0) * np.ones(()), np.ones(()), np.ones(())) == 0.0


def test_a_scale_of_zero_or_infinity_does_not_hide_an_error() -> None:
    assert error(f32(0.0), f32(0.0), 0.0) == 0.0
    assert error(f32(1.0), f32(0.0), 0.0) > 1e6
    assert relative_error(f32(2.0), f32(1.0), f32(inf)) == pytest.approx(1.0)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_zero_exactly_when_equal(values: list[float], scale: float) -> None:
    reference = f32(*values)
    assert error(reference.copy(), reference, scale) == 0.0
    changed = reference.copy()
    changed[0] = np.nextafter(changed[0], np.float32(inf))
    assert error(changed, reference, scale) > 0.0


def test_network_errors_are_relative_to_the_largest_value_of_their_own_output() -> None:
    check = compare_outputs(
        [f32(100.0, 0.1), f32(0.011, 0.0)], [f32(100.0, 0.0), f32(0.010, 0.0)], ["a", "b"]
    )
    assert check.max_abs_error == pytest.approx(0.1)
    assert check.max_rel_error == pytest.approx(0.1, rel=1e-3)
    assert check.output == "b"


@given(st.integers(1, 5), st.data())
def test_a_fault_in_any_output_is_found_and_named(count: int, data: st.DataObject) -> None:
    theirs = [np.arange(1, 4 + index, dtype=np.float32) for index in range(count)]
    names = [f"output {index}" for index in range(count)]
    same = compare_outputs([array.copy() for array in theirs], theirs, names)
    assert (same.max_abs_error, same.max_rel_error, same.output) == (0.0, 0.0, "")
    wrong = data.draw(st.integers(0, count - 1))
    place = data.draw(st.integers(0, theirs[wrong].size - 1))
    ours = [array.copy() for array in theirs]
    ours[wrong][place] += 1
    check = compare_outputs(ours, theirs, names)
    assert check.output == names[wrong] and check.max_rel_error > 0.1


def test_an_output_that_is_missing_is_no_match() -> None:
    with pytest.raises(ValueError, match="shorter|longer"):
        compare_outputs([f32(1.0)], [f32(1.0), f32(2.0)], ["a", "b"])


def test_an_output_of_another_type_is_wrong() -> None:
    check = compare_outputs([np.array([1, 2], np.int32)], [np.array([1, 2], np.int64)], ["a"])
    assert check.max_rel_error == inf


def test_a_position_off_by_one_is_wrong_however_large_it_is() -> None:
    position = np.array([30_000], np.int64)
    assert compare_outputs([position + 1], [position], ["a"]).max_rel_error == 1.0
    assert compare_outputs([position.copy()], [position], ["a"]).max_rel_error == 0.0
    code = np.array([200], np.uint8)
    assert compare_outputs([code + np.uint8(1)], [code], ["a"]).max_rel_error == 1 / 200


def test_network_outputs_with_nan() -> None:
    assert compare_outputs([f32(nan, 1.0)], [f32(nan, 1.0)], ["a"]).max_rel_error == 0.0
    assert compare_outputs([f32(nan, 1.0)], [f32(1.0, 1.0)], ["a"]).max_rel_error == inf
    assert compare_outputs([f32(0.0)], [f32(0.0)], ["a"]).max_rel_error == 0.0
    assert compare_outputs([np.array([True])], [np.array([False])], ["a"]).max_rel_error == 1.0


def test_sampled_arguments_fit_the_workload() -> None:
    kinds = [TensorType((3, 4)), TensorType((2, 5), "int64"), TensorType((2,), "bool")]
    gather = Step(operator="gather", inputs=(0, 1), attributes=attributes(axis=0))
    task = Workload(arguments=tuple(Argument(type=kind) for kind in kinds), steps=(gather,))
    arrays = sample_arguments(task, 3)
    assert [(a.shape, str(a.dtype)) for a in arrays] == [(k.shape, k.dtype) for k in kinds]
    assert arrays[1].min() >= 0 and arrays[1].max() < 3
    again = sample_arguments(task, 3)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, again, strict=True))


class Cramped(NumpyMeasurer):
    """Has no memory for the first `short` evaluations."""

    def __init__(self, short: int) -> None:
        super().__init__(lambda *_: 1.0)
        self.short = short

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        if len(self.evaluated) < self.short:
            self.evaluated.append((workload.key, candidate))
            return failed(workload, candidate, "out of memory")
        return super().evaluate(workload, candidate, arrays)


@pytest.mark.parametrize(("short", "checked"), [(0, True), (1, True), (2, False)])
def test_a_worker_too_small_for_a_kernel_says_nothing_against_it(short: int, checked: bool) -> None:
    workload = convolution()
    forms = (BLOCKED, PLAIN, BLOCKED)
    candidate = Candidate(implementation=DIRECT, settings=(), forms=forms)
    measurer = Cramped(short)
    found = check_kernel(cast(Measurer, measurer), workload, candidate, 0)
    assert found.failure is None
    assert (found.error is not None) is checked
    assert len(measurer.evaluated) == (short + 1 if checked else short)


class Storing(NumpyMeasurer):
    """Rounds what it computes to the type that results are stored in, and does something to it."""

    def __init__(self, then: Callable[[Array], Array]) -> None:
        super().__init__(lambda *_: 1.0)
        self.then = then

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        found = super().evaluate(workload, candidate, arrays)
        assert isinstance(found, np.ndarray)
        return self.then(stored_as(found, candidate.forms[-1]))


def _flushed(array: Array) -> Array:
    """Without the numbers of float16 that have lost bits."""
    return np.where(np.abs(array) < 2.0**-14, np.float32(0.0), array)


def _small_ones_off(array: Array) -> Array:
    """Numbers of float16 that have lost bits, the next larger ones."""
    return np.where(np.abs(array) < 2.0**-14, array + np.float32(2.0**-24), array)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_image_that_is_rounded_has_small_numbers_that_lose_more_bits(dtype: str) -> None:
    image = copying(TensorType((1, 3, 224, 224)))
    forms = (PLAIN, stored_in(PLAIN, dtype))
    candidate = Candidate(implementation="injective", settings=(), forms=forms)
    right = check_kernel(cast(Measurer, Storing(lambda array: array)), image, candidate, 0)
    assert right.failure is None
    assert right.error is not None and right.bound / 2 < right.error <= right.bound
    for wrong in (lambda array: array * np.float32(1 + 2 * right.bound), *_OF_SMALL[dtype]):
        found = check_kernel(cast(Measurer, Storing(wrong)), image, candidate, 0)
        assert found.failure is not None and found.failure.kind == "wrong result"


_OF_SMALL: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "float16": (_flushed, _small_ones_off),
    "bfloat16": (_flushed,),
}


def test_random_weights_of_recurrent_layers_are_not_chaotic() -> None:
    named = dict(cell="rnn", activations="tanh", operands="", clip=0.0, reverse=False, finals=0)
    task = single("recurrent", (60, 1, 200), (200, 200), constants=(1,), **named)
    arrays = sample_arguments(task, 0)
    wide = [array.astype(np.float64) for array in arrays]
    difference = np.abs(run_workload(task, arrays) - run_workload(task, wide))
    assert difference.max() < 1e-5


@given(st.floats(1.0, 90.0), st.integers(1, 3))
def test_the_ratio_of_signal_to_noise_is_that_of_the_powers(ratio_db: float, runs: int) -> None:
    rng = np.random.default_rng(runs)
    theirs = [[rng.standard_normal(500), np.array([3], np.int64)] for _ in range(runs)]
    noise = [rng.standard_normal(500) for _ in range(runs)]
    powers = [sum(float(n @ n) for n in part) for part in (noise, [run[0] for run in theirs])]
    size = (powers[1] / powers[0]) ** 0.5 * 10 ** (-ratio_db / 20)
    ours = [[run[0] + size * n, run[1]] for run, n in zip(theirs, noise, strict=True)]
    check = compare_runs(ours, theirs, ["a", "b"])
    assert check.sqnr_db == pytest.approx(ratio_db, abs=1e-6)
    assert (check.centred_sqnr_db is None) == (runs == 1)


def test_what_all_inputs_share_is_no_signal_of_the_centred_ratio() -> None:
    shared, own = np.full(4, 1000.0), [np.ones(4), -np.ones(4)]
    theirs = [[shared + each] for each in own]
    check = compare_runs([[run[0] + 0.1] for run in theirs], theirs, ["a"])
    assert check.sqnr_db == pytest.approx(80.0, abs=0.1)
    assert check.centred_sqnr_db == pytest.approx(20.0)
    assert check.output == "a" and check.max_abs_error == pytest.approx(0.1)


def test_ratios_of_what_is_all_right_and_all_wrong() -> None:
    assert compare_outputs([f32(1.0)], [f32(1.0)], ["a"]).sqnr_db == 300.0
    assert compare_outputs([f32(nan)], [f32(1.0)], ["a"]).sqnr_db == -300.0
    position = np.array([30_000], np.int64)
    assert compare_outputs([position + 1], [position], ["a"]).sqnr_db == -300.0
    assert compare_outputs([f32(1.0)], [f32(0.0)], ["a"]).sqnr_db == -300.0


def test_the_run_that_is_off_the_most_is_named() -> None:
    right = [[np.ones(3, np.float32)]] * 3
    wrong = [[np.ones(3, np.float32)], [np.full(3, np.nan, np.float32)], [np.full(3, 1.5, "f4")]]
    assert worst_run(wrong, right, ["y"]) == 1
    assert worst_run(right, right, ["y"]) == 0

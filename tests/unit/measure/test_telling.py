"""What outputs say beside their errors: whether the largest element agrees, and what they hide."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.measure.checking import compare_outputs, compare_runs

TINY = float(np.finfo(np.float32).tiny)


def outputs(shape: tuple[int, ...], runs: int = 2) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(7)
    return [[rng.standard_normal(shape).astype(np.float32)] for _ in range(runs)]


@pytest.mark.parametrize(
    ("shape", "axis", "rows"),
    [((5,), 0, 2), ((3, 5), 1, 6), ((2, 3, 5), 2, 12), ((1, 5, 2, 2), 1, 8)],
)
def test_the_largest_element_of_a_row_agrees_or_not(
    shape: tuple[int, ...], axis: int, rows: int
) -> None:
    """One row of the first run has another largest element; of images a row is a pixel."""
    theirs = outputs(shape)
    ours = [[run[0].copy()] for run in theirs]
    np.moveaxis(ours[0][0], axis, -1)[(0,) * (len(shape) - 1)] *= -1
    check = compare_runs(ours, theirs, ["y"])
    assert check.top1_rows == rows
    assert check.top1_agreement == pytest.approx((rows - 1) / rows)
    assert compare_runs(theirs, theirs, ["y"]).top1_agreement == 1.0


def test_the_output_that_agrees_least_is_told_and_some_have_no_rows() -> None:
    alike, other = np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([[3.0, 4.0]])
    check = compare_outputs([alike, other[:, ::-1]], [alike, other], ["a", "b"])
    assert (check.top1_agreement, check.top1_rows) == (0.0, 1)
    for array in (np.ones((3, 1)), np.array(2.0), np.array([1, 2]), np.array([np.nan, 1.0])):
        assert compare_outputs([array], [array], ["y"]).top1_agreement is None


def test_elements_that_are_equal_in_the_reference_count_as_one() -> None:
    check = compare_outputs([np.array([0.9, 1.0])], [np.array([1.0, 1.0])], ["y"])
    assert check.top1_agreement == 1.0


def told(theirs: list[list[np.ndarray]], names: tuple[str, ...] = ("y",)) -> tuple[str, ...]:
    return compare_runs(theirs, theirs, names).untold


def test_a_network_that_ignores_its_input_cannot_tell() -> None:
    shared = np.linspace(50.0, 100.0, 40).reshape(1, 40)
    ignoring = [[shared + run[0]] for run in outputs((1, 40))]
    first, second = told(ignoring)
    assert first.startswith("Output 'y' hardly depends on the network's inputs: less than 1%")
    assert second.startswith("Output 'y' has its largest element at one place for all 2 inputs")
    assert told(ignoring[:1]) == (), "one input does not tell"
    assert told([[np.zeros((1, 4))]] * 2)[0].startswith("Output 'y' hardly depends")


def test_outputs_that_depend_on_their_inputs_can_tell() -> None:
    """Also those of whole numbers, and a hundredth of the power that differs."""
    shared = np.array([0.0, 10.0, 10.0, 0.0])
    differing = [[shared + each] for each in (np.array([0, 4, 0, 0]), np.array([0, 0, 4, 0]))]
    assert told(differing) == ()
    assert told([[np.array([3, 4])], [np.array([3, 4])]]) == ()


def test_denormal_outputs_are_told_and_many_outputs_together() -> None:
    names = tuple("abcde")
    small = [[run[0] * TINY / 100 for _ in names] for run in outputs((2, 9))]
    (sentence,) = told(small, names)
    assert sentence.startswith("Each of the outputs 'a' and 'b' and 'c' (and 2 more) has numbers")
    assert "1.2e-38" in sentence
    assert told([[run[0] * TINY * 1e6] for run in outputs((2, 9))]) == ()
    assert told(outputs((2, 9), runs=1)) == () != told([small[0]], names)

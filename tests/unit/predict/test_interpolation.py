"""Times between two measured kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.records.predictor_kernels import candidates, convolution, relu
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.predict.collected import MeasuredKernels, Row


def measured_kernels(known: list[tuple[Workload, Candidate, float]]) -> MeasuredKernels:
    return MeasuredKernels(Row(workload=w, candidate=c, latency_s=s) for w, c, s in known)


def test_the_very_kernel_is_known_exactly() -> None:
    workload = relu(1000)
    candidate = candidates(workload, 1)[0]
    known = measured_kernels([(workload, candidate, 2e-6)])
    found = known.estimate(workload, candidate)
    assert found is not None
    assert (found.latency_s, found.low_s, found.high_s, found.source) == (2e-6, 2e-6, 2e-6, "exact")
    assert known.estimate(relu(1001), candidate) is None


@given(st.integers(1000, 5000), st.floats(1.02, 1.2), st.floats(1.02, 1.2))
def test_a_size_between_two_measured_ones(size: int, less: float, more: float) -> None:
    """On a power law the answer is the law's; it lies within its interval."""
    middle = relu(size)
    candidate = candidates(middle, 1)[0]
    sides = [round(size / less), round(size * more)]
    known = measured_kernels([(relu(n), candidate, n**1.5 * 1e-9) for n in sides])
    found = known.estimate(middle, candidate)
    assert found is not None
    assert found.latency_s == pytest.approx(size**1.5 * 1e-9, rel=1e-6)
    assert found.low_s <= found.latency_s <= found.high_s


def test_nothing_between_kernels_on_one_side_far_apart_or_of_another_form() -> None:
    middle = relu(1000)
    candidate = candidates(middle, 1)[0]
    one_side = [(relu(n), candidate, 1e-6) for n in (1100, 1200)]
    far = [(relu(n), candidate, 1e-6) for n in (100, 10_000)]
    assert measured_kernels(one_side).estimate(middle, candidate) is None
    assert measured_kernels(far).estimate(middle, candidate) is None
    conv = convolution(16, 16, 14)
    own = candidates(conv, 1)[0]
    padded = [(convolution(16, 16, extent, padding=0), own, 1e-6) for extent in (13, 15)]
    assert measured_kernels(padded).estimate(conv, own) is None


def test_two_extents_must_move_together() -> None:
    """Wider and shallower at once is not between."""
    middle = convolution(100, 100, 14)
    candidate = candidates(middle, 1)[0]
    askew = [
        (convolution(90, 100, 14), candidate, 1e-6),
        (convolution(100, 110, 14), candidate, 1e-6),
    ]
    assert measured_kernels(askew).estimate(middle, candidate) is None
    straight = [(convolution(c, 100, 14), candidate, c * 1e-8) for c in (90, 110)]
    assert measured_kernels(straight).estimate(middle, candidate) is not None

"""What estimates assume of arithmetic."""

from __future__ import annotations

import pytest

from tilewright.core.records import Placement
from tilewright.kernels.rates import CLOCK_HZ, peak_flop_per_s
from tilewright.testing.implementations import PLACEMENTS


@pytest.mark.parametrize("on", PLACEMENTS, ids=lambda on: str(on.target.vector_bytes))
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_two_vectors_multiply_and_add_in_each_cycle(on: Placement, dtype: str) -> None:
    expected = on.resources.threads * 2 * 2 * on.target.lanes(dtype) * CLOCK_HZ
    assert peak_flop_per_s(on.target, on.resources, dtype) == expected

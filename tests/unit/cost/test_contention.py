"""How much kernels slow each other down, by what each streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.targets import MemoryLevel
from tilewright.cost.contention import slowdown, streamed_bytes
from tilewright.cost.floors import Work, least_work
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload

TARGET = altered(
    PLACEMENT, memory=(MemoryLevel(name="L1", bytes=1000), MemoryLevel(name="L2", bytes=10_000))
).target
RATES = st.floats(0.0, 1e12)


def test_weights_stream_and_data_beyond_the_second_level_cache() -> None:
    work = Work(flop=0, memory_bytes=500, cache_bytes=25_000)
    assert streamed_bytes(work, TARGET, 1) == 500 + 15_000
    assert streamed_bytes(work, TARGET, 2) == 500 + 5_000
    assert streamed_bytes(work, TARGET, 4) == 500


def test_of_a_table_only_what_is_looked_up_counts() -> None:
    gather = Workload(
        arguments=(
            Argument(type=TensorType((10_000, 64)), role="constant"),
            Argument(type=TensorType((8,), "int64")),
        ),
        steps=(Step(operator="gather", inputs=(0, 1), attributes=(("axis", 0),)),),
    )
    assert streamed_bytes(least_work(gather, TARGET), TARGET, 1) == 8 * 64 * 4


@given(RATES, RATES, st.floats(1e9, 1e12))
def test_it_grows_with_what_both_stream(own: float, others: float, scale: float) -> None:
    found = slowdown(own, others, scale)
    assert found >= 1.0
    assert found == slowdown(others, own, scale)
    assert slowdown(own, 2 * others, scale) >= found
    assert slowdown(0.0, others, scale) == slowdown(own, 0.0, scale) == 1.0
    assert slowdown(scale, scale, scale) == pytest.approx(2.0)

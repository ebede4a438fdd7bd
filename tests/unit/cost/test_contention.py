"""How much kernels slow each other down, by what each streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.placements import altered
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.core.targets import MemoryLevel
from tilewright.cost.contention import measured_scale, slowdown, streamed_bytes
from tilewright.cost.floors import Work, least_work, looked_up_bytes
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.estimates import kernel_stream

LEVELS = (MemoryLevel(name="L1", bytes=1000), MemoryLevel(name="L2", bytes=10_000))
LAST = MemoryLevel(name="L3", bytes=80_000, cores=4)
TARGET = altered(PLACEMENT, memory=LEVELS).target
SHARING = altered(PLACEMENT, memory=(*LEVELS, LAST)).target
GATHERED = Candidate(implementation="injective", settings=(), forms=(PLAIN,) * 3)
RATES = st.floats(0.0, 1e12)


def test_weights_stream_and_data_beyond_the_second_level_cache() -> None:
    work = Work(flop=0, memory_bytes=500, cache_bytes=25_000)
    assert streamed_bytes(work, TARGET, 1) == 500 + 15_000
    assert streamed_bytes(work, TARGET, 2) == 500 + 5_000
    assert streamed_bytes(work, TARGET, 4) == 500


def test_half_of_each_cores_share_of_the_last_cache_is_kept() -> None:
    work = Work(flop=0, memory_bytes=500, cache_bytes=65_000)
    assert streamed_bytes(work, SHARING, 1) == 500 + 65_000 - 10_000 - 80_000 / 4 / 2
    assert streamed_bytes(work, SHARING, 4) == 500


def test_rows_of_a_table_are_data() -> None:
    gather = Workload(
        arguments=(
            Argument(type=TensorType((10_000, 64)), role="constant"),
            Argument(type=TensorType((8,), "int64")),
        ),
        steps=(Step(operator="gather", inputs=(0, 1), attributes=(("axis", 0),)),),
    )
    rows = 8 * 64 * 4
    assert looked_up_bytes(gather) == rows == least_work(gather, TARGET).memory_bytes
    assert kernel_stream(gather, GATHERED, TARGET, 1) == 0
    small = altered(PLACEMENT, memory=(LEVELS[0], MemoryLevel(name="L2", bytes=rows))).target
    assert kernel_stream(gather, GATHERED, small, 1) == rows + 8 * 8, "what comes out and indices"


@given(RATES, RATES, st.floats(1e9, 1e12))
def test_it_grows_with_what_both_stream(own: float, others: float, scale: float) -> None:
    found = slowdown(own, others, scale)
    assert found >= 1.0
    assert found == slowdown(others, own, scale)
    assert slowdown(own, 2 * others, scale) >= found
    assert slowdown(0.0, others, scale) == slowdown(own, 0.0, scale) == 1.0
    assert slowdown(scale, scale, scale) == pytest.approx(2.0)


@given(st.lists(st.tuples(st.floats(2e9, 1e11), st.floats(2e9, 1e11)), min_size=1, max_size=5))
def test_the_scale_comes_back_from_what_it_says(rates: list[tuple[float, float]]) -> None:
    seen = [(own, other, float(slowdown(own, other, 1e10))) for own, other in rates]
    assert measured_scale(seen) == pytest.approx(1e10)
    unhurt = measured_scale([(3e10, 3e10, 0.99)])
    assert unhurt == measured_scale([(3e10, 3e10, 1.0)]) == pytest.approx(3e11)

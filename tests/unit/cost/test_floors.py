"""The least time of a call: by definition, by algorithm, by what a machine was seen to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.kernels.gpu_kernels import a_gpu
from tilewright.cost.floors import (
    Peaks,
    Work,
    bound,
    columns,
    floor_s,
    least_work,
    raised,
    roofline_s,
)
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.estimates import task_floor_s, work_of
from tilewright.testing.implementations import PLACEMENTS, single

WIDE = PLACEMENTS[0]
PEAKS = Peaks(flop_per_s=1e11, bytes_per_s=1e10, cache_bytes_per_s=1e11)
AMOUNTS = st.floats(1, 1e15)
WORKS = st.builds(Work, flop=AMOUNTS, memory_bytes=AMOUNTS, cache_bytes=AMOUNTS)


def gather(rows: int, taken: int) -> Workload:
    arguments = (
        Argument(type=TensorType((rows, 768)), role="constant"),
        Argument(type=TensorType((taken,), "int64")),
    )
    step = Step(operator="gather", inputs=(0, 1), attributes=attributes(axis=0))
    return Workload(arguments=arguments, steps=(step,))


def convolution(kernel: int = 3, dtype: str = "float32") -> Workload:
    given = attributes(strides=(1, 1), padding=(kernel // 2,) * 4, dilation=(1, 1), groups=1)
    weights = Argument(type=TensorType((64, 64, kernel, kernel), dtype), role="constant")
    step = Step(operator="conv2d", inputs=(0, 1), attributes=given)
    return Workload(
        arguments=(Argument(type=TensorType((1, 64, 56, 56), dtype)), weights), steps=(step,)
    )


def test_a_lookup_reads_the_rows_it_takes() -> None:
    work = least_work(gather(rows=30522, taken=128), WIDE.target)
    assert work.memory_bytes == 128 * 768 * 4
    assert work.cache_bytes == 128 * 8 + 128 * 768 * 4
    assert floor_s(work, PEAKS) < 1e-4, "not the milliseconds of the whole table"


def test_a_type_has_the_speed_of_its_unit() -> None:
    speeds = {
        dtype: least_work(convolution(dtype=dtype), WIDE.target).speed
        for dtype in ("float32", "float64", "int32")
    }
    assert speeds == {"float32": 1.0, "float64": 0.5, "int32": 1.0}
    dots = [on for on in PLACEMENTS if any(u.element == "int8" for u in on.target.units)]
    for on in dots:
        assert least_work(convolution(dtype="int8"), on.target).speed == 4.0


@pytest.mark.parametrize(("model", "dots"), [("H100", 2.0), ("T4", 4.0), ("P100", 1.0)])
def test_what_no_unit_of_a_gpu_takes_has_the_speed_of_singles(model: str, dots: float) -> None:
    target = a_gpu(f"-model={model}").target
    for dtype in ("uint8", "int32", "float16", "float32", "float64"):
        assert least_work(convolution(dtype=dtype), target).speed == 1.0, dtype
    assert least_work(convolution(dtype="int8"), target).speed == dots


def test_winograd_has_a_floor_of_its_own_below_the_definition() -> None:
    task = convolution()
    peaks = Peaks(flop_per_s=1e11, bytes_per_s=1e12, cache_bytes_per_s=1e12)
    plain = work_of(task, "conv2d_direct", WIDE.target)
    fewer = work_of(task, "conv2d_winograd", WIDE.target)
    assert plain == least_work(task, WIDE.target)
    assert fewer.flop < plain.flop / 2 and fewer.memory_bytes > plain.memory_bytes
    assert floor_s(fewer, peaks) < floor_s(plain, peaks) / 2
    least = task_floor_s(task, WIDE.target, WIDE.resources, peaks)
    assert least <= floor_s(fewer, peaks), "the least of all that apply"
    pointwise = convolution(kernel=1)
    assert task_floor_s(pointwise, WIDE.target, WIDE.resources, peaks) == floor_s(
        least_work(pointwise, WIDE.target), peaks
    )


def test_what_is_not_installed_has_the_definition_s_floor() -> None:
    task = convolution()
    assert work_of(task, "gone", WIDE.target) == least_work(task, WIDE.target)


def test_many_are_told_like_one() -> None:
    tasks = [convolution(), convolution(1), gather(100, 7), single("relu", (4, 4))]
    together = columns([least_work(task, WIDE.target) for task in tasks])
    for row, task in enumerate(tasks):
        alone = least_work(task, WIDE.target)
        assert floor_s(together, PEAKS)[row] == floor_s(alone, PEAKS)


@pytest.mark.parametrize(
    ("work", "latency_s", "expected"),
    [
        (Work(flop=1e9, memory_bytes=1e3), 0.011, "compute"),
        (Work(flop=1e3, memory_bytes=1e9), 0.11, "memory"),
        (Work(flop=1e3, memory_bytes=1e3), 1e-5, "overhead"),
        (Work(flop=1e3, memory_bytes=1e9), 0.5, "memory"),
    ],
)
def test_what_bounds_a_call(work: Work, latency_s: float, expected: str) -> None:
    assert bound(work, PEAKS, latency_s) == expected


@given(calls=st.lists(st.tuples(WORKS, st.floats(1e-7, 1e3)), max_size=5))
def test_no_call_is_faster_than_its_floor_by_the_peaks_it_shows(
    calls: list[tuple[Work, float]],
) -> None:
    peaks = raised(PEAKS, calls)
    assert peaks.flop_per_s >= PEAKS.flop_per_s and peaks.bytes_per_s >= PEAKS.bytes_per_s
    assert peaks.cache_bytes_per_s / peaks.bytes_per_s == pytest.approx(10)
    for work, latency_s in calls:
        if latency_s >= 2e-5:
            assert roofline_s(work, peaks) <= latency_s * (1 + 1e-9)

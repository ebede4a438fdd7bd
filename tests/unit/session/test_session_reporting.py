"""Task rows and what bounds them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.core.records import Candidate, Measurement, Protocol
from tilewright.graph.network import attributes
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.blueprint import TaskKey
from tilewright.session.preparation import Task
from tilewright.session.reporting import (
    Peaks,
    explain_difference,
    in_their_places,
    task_reports,
)

PEAKS = Peaks(flop_per_s=1e11, bytes_per_s=1e10, cache_bytes_per_s=1e10)
LAYOUTS = ("plain", "plain", "plain")


def dense(rows: int, inside: int = 64, outside: int = 64) -> Workload:
    step = Step(operator="dense", inputs=(0, 1), attributes=attributes())
    shapes = [(rows, inside), (inside, outside)]
    return Workload(
        arguments=tuple(Argument(type=TensorType(shape)) for shape in shapes), steps=(step,)
    )


def task(workload: Workload, count: int = 1, name: str = "task") -> Task:
    return Task(
        key=(workload.key, LAYOUTS),
        name=name,
        workload=workload,
        layouts=LAYOUTS,
        count=count,
        nodes=("node",),
    )


def measured(workload: Workload, seconds: float) -> Measurement:
    return Measurement(
        workload_key=workload.key,
        candidate=CHOSEN,
        device_class="d",
        protocol=Protocol(),
        kernel_hash="h",
        samples_s=(seconds, seconds * 1.1, seconds * 0.9),
        build_s=0.0,
    )


CHOSEN = Candidate(implementation="one", settings=(("k", 1),), layouts=LAYOUTS)


def by_key(*tasks: Task) -> dict[TaskKey, Task]:
    return {task.key: task for task in tasks}


def test_shares_add_up_and_the_largest_comes_first() -> None:
    small, large = task(dense(4), count=3, name="small"), task(dense(64), name="large")
    times = {small.key: measured(small.workload, 1e-4), large.key: measured(large.workload, 5e-4)}
    rows = task_reports(
        by_key(small, large),
        {small.key: CHOSEN, large.key: CHOSEN}, times, {}, PEAKS,
    )  # fmt: skip
    assert [row.name for row in rows] == ["large", "small"]
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert rows[1].share == pytest.approx(3 / 8)
    assert rows[0].gflop_per_s == pytest.approx(large.workload.flop / 5e-4 / 1e9)
    assert rows[0].error is None and rows[0].settings == {"k": 1}


def test_tasks_without_a_time_come_last_and_say_so() -> None:
    known, unknown = task(dense(4)), task(dense(5))
    rows = task_reports(
        by_key(known, unknown),
        {known.key: CHOSEN, unknown.key: CHOSEN},
        {known.key: measured(known.workload, 1e-4)}, {}, PEAKS,
    )  # fmt: skip
    assert [row.latency_s for row in rows] == [1e-4, None]
    assert [row.share for row in rows] == [1.0, 0.0]
    unknown_only = task_reports(by_key(known), {known.key: CHOSEN}, {}, {}, PEAKS)
    assert [row.share for row in unknown_only] == [0.0]


def test_bounds() -> None:
    many, one = task(dense(4096, 512, 512)), task(dense(1, 512, 512))
    assert PEAKS.bound(many, 1.2 * PEAKS.floor_s(many)) == "compute"
    assert PEAKS.bound(one, 1.2 * PEAKS.floor_s(one)) == "memory"
    assert PEAKS.bound(task(dense(1, 4, 4)), 1e-5) == "overhead"
    assert PEAKS.floor_s(task(dense(1, 1, 1))) == 1e-7
    assert PEAKS.floor_s(many) == many.workload.flop / PEAKS.flop_per_s


def test_the_difference_is_explained_only_where_there_is_one() -> None:
    assert explain_difference(1.0, 0.95, 10) == ""
    assert explain_difference(1.0, 1.05, 10) == ""
    assert "20000.0 µs for each of 10" in explain_difference(1.0, 0.8, 10)
    assert "weights" in explain_difference(1.0, 1.5, 10)
    assert explain_difference(0.0, 1.0, 0) == ""


def test_the_tasks_that_differ_in_place_are_named() -> None:
    same, apart = task(dense(4), name="same"), task(dense(64), count=2, name="apart")
    times = {t.key: measured(t.workload, 1e-3) for t in (same, apart)}
    rows = task_reports(
        by_key(same, apart),
        {same.key: CHOSEN, apart.key: CHOSEN}, times, {}, PEAKS,
    )  # fmt: skip
    rows = in_their_places(rows, {same.key: 1e-3, apart.key: 1.5e-3})
    assert {row.name: row.in_place_s for row in rows} == {"same": 1e-3, "apart": 1.5e-3}
    assert explain_difference(4e-3, 3e-3, 3, rows).endswith("Most of it in apart (1000 µs).")
    assert "apart" not in explain_difference(2e-3, 3e-3, 3, rows), "not what makes it faster"


def test_spread_travels() -> None:
    only = task(dense(4))
    rows = task_reports(
        by_key(replace(only, count=2)),
        {only.key: CHOSEN}, {only.key: measured(only.workload, 1e-3)}, {}, PEAKS,
    )  # fmt: skip
    assert rows[0].spread == pytest.approx(0.2)
    assert rows[0].count == 2

"""Task rows and what bounds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Measurement, Protocol
from tilewright.core.results import TaskReport
from tilewright.core.targets import threads_alone
from tilewright.core.timings import Timing
from tilewright.cost.floors import Peaks, bound, least_work
from tilewright.graph.arrange import copying
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.plan import Lane, NetworkPlan, PlannedCall, PlannedTensor
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.report.task_rows import (
    call_reports,
    explain_difference,
    outside_tasks,
    seen_peaks,
    task_reports,
)
from tilewright.testing.implementations import PLACEMENTS

TARGET = PLACEMENTS[0].target
PEAKS = Peaks(flop_per_s=1e11, bytes_per_s=1e10, cache_bytes_per_s=1e10)
FORMS = (PLAIN, PLAIN, PLAIN)


def dense(rows: int, inside: int = 64, outside: int = 64) -> Workload:
    step = Step(operator="dense", inputs=(0, 1), attributes=attributes())
    shapes = [(rows, inside), (inside, outside)]
    return Workload(
        arguments=tuple(Argument(type=TensorType(shape)) for shape in shapes), steps=(step,)
    )


def task(workload: Workload, count: int = 1, name: str = "task") -> Task:
    return Task(
        key=(workload.key, FORMS),
        name=name,
        workload=workload,
        forms=FORMS,
        count=count,
        nodes=("node",),
    )


def measured(workload: Workload, seconds: float) -> Measurement:
    return Measurement(
        workload_key=workload.key,
        candidate=CHOSEN,
        device_class="d",
        resources=threads_alone(1),
        protocol=Protocol(),
        kernel_hash="h",
        samples_s=(seconds, seconds * 1.1, seconds * 0.9),
        build_s=0.0,
    )


CHOSEN = Candidate(implementation="one", settings=(("k", 1),), forms=FORMS)


LANE = Lane(device="d", resources=threads_alone(1))


def plan_of(tasks: Sequence[Task]) -> NetworkPlan:
    """Calls of each task, as many as it has, each on tensors of its own."""
    tensors: dict[str, PlannedTensor] = {}
    calls: list[PlannedCall] = []
    for task in tasks:
        for number in range(task.count):
            name = task.name if number == 0 else f"{task.name}/{number}"
            kinds = [*(argument.type for argument in task.workload.arguments), task.workload.result]
            names = [f"{name}.{port}" for port in range(len(kinds))]
            tensors |= {
                tensor: PlannedTensor(type=kind, root=tensor, device=LANE.device)
                for tensor, kind in zip(names, kinds, strict=True)
            }
            calls.append(
                PlannedCall(
                    name=name,
                    workload=task.workload,
                    candidate=CHOSEN,
                    inputs=tuple(names[:-1]),
                    output=names[-1],
                    nodes=("node",),
                )
            )
    return NetworkPlan(
        inputs=tuple(tensor for call in calls for tensor in call.inputs),
        outputs=tuple(call.output for call in calls),
        tensors=tensors,
        calls=tuple(calls),
        lanes={"main": LANE},
    )


def reports(
    *tasks: Task,
    alone: Mapping[str, float] | None = None,
    in_place: Mapping[str, float] | None = None,
    network_s: float = 0.0,
) -> tuple[TaskReport, ...]:
    """Rows of tasks with times by their names."""
    known: dict[TaskKey, CallResult] = {}
    for task in tasks:
        alone_s = (alone or {}).get(task.name)
        known[task.key] = CallResult(
            alone=None if alone_s is None else measured(task.workload, alone_s),
            in_place_s=(in_place or {}).get(task.name),
        )
    timing = Timing(rounds_s=((network_s,),)) if network_s else None
    result = PlanResult(name="tuned", plan=plan_of(tasks), timing=timing).with_tasks(known)
    return task_reports(result, PEAKS, TARGET)


def test_without_a_network_shares_are_of_the_sum_of_the_tasks_alone() -> None:
    small, large = task(dense(4), count=3, name="small"), task(dense(64), name="large")
    rows = reports(small, large, alone={"small": 1e-4, "large": 5e-4})
    assert [row.name for row in rows] == ["large", "small"]
    assert [row.share for row in rows] == [pytest.approx(5 / 8), pytest.approx(3 / 8)]
    assert rows[0].gflop_per_s == pytest.approx(large.workload.flop / 5e-4 / 1e9)
    assert rows[0].error is None and rows[0].settings == {"k": 1}
    assert outside_tasks(rows, 0.0) == (0.0, 0.0)


def test_shares_are_of_the_network_by_times_in_place() -> None:
    small, large = task(dense(4), count=2, name="small"), task(dense(64), name="large")
    rows = reports(
        small,
        large,
        alone={"small": 9e-4},
        in_place={"small": 1e-4, "large": 6e-4},
        network_s=1e-3,
    )
    assert [row.name for row in rows] == ["large", "small"], "measured alone or not"
    assert [row.share for row in rows] == [pytest.approx(0.6), pytest.approx(0.2)]
    assert outside_tasks(rows, 1e-3) == (pytest.approx(2e-4), pytest.approx(0.2))
    assert rows[0].latency_s is None
    assert rows[0].gflop_per_s == pytest.approx(large.workload.flop / 6e-4 / 1e9)
    assert rows[0].bound == bound(least_work(large.workload, TARGET), PEAKS, 6e-4)
    assert rows[1].gflop_per_s == pytest.approx(small.workload.flop / 9e-4 / 1e9)


times_s = st.floats(1e-7, 1.0)


@given(
    st.lists(st.tuples(times_s | st.none(), times_s, st.integers(1, 9)), min_size=1, max_size=8),
    times_s,
)
def test_shares_of_a_network_add_up_and_its_largest_tasks_lead(rows, network_s) -> None:
    tasks = [task(dense(n), count=r[2], name=f"t{n}") for n, r in enumerate(rows, 1)]
    alone = {t.name: r[0] for t, r in zip(tasks, rows, strict=True) if r[0] is not None}
    in_place = {t.name: r[1] for t, r in zip(tasks, rows, strict=True)}
    found = reports(*tasks, alone=alone, in_place=in_place, network_s=network_s)
    rest_s, rest_share = outside_tasks(found, network_s)
    assert sum(row.share or 0.0 for row in found) + rest_share == pytest.approx(1.0)
    assert rest_s >= 0.0 and rest_share >= 0.0
    seconds = [row.count * in_place[row.name] for row in found]
    assert seconds == sorted(seconds, reverse=True)


def test_a_task_without_any_time_has_no_share_and_comes_last() -> None:
    known, unknown = task(dense(4), name="known"), task(dense(5), name="unknown")
    rows = reports(unknown, known, alone={"known": 1e-4})
    assert [(row.name, row.share) for row in rows] == [("known", 1.0), ("unknown", None)]
    assert [row.share for row in reports(unknown)] == [None]


def test_no_task_is_faster_than_its_floor() -> None:
    """A call that beats the peaks shows that these were measured too low."""
    large, tiny = task(dense(4096, 512, 512), name="large"), task(dense(1, 512, 512), name="tiny")
    result = PlanResult(name="tuned", plan=plan_of([large, tiny])).with_tasks(
        {
            large.key: CallResult(alone=measured(large.workload, 2e-3)),
            tiny.key: CallResult(alone=measured(tiny.workload, 5e-6)),
        }
    )
    peaks = seen_peaks(result, PEAKS, TARGET)
    assert peaks.flop_per_s == pytest.approx(large.workload.flop / 2e-3)
    assert peaks.bytes_per_s == PEAKS.bytes_per_s, "of what little a short call moves"
    rows = {row.name: row for row in task_reports(result, peaks, TARGET)}
    assert rows["large"].roof_s == pytest.approx(2e-3) and rows["large"].bound == "compute"
    assert rows["tiny"].roof_s == 5e-6 and rows["tiny"].bound == "memory"


def test_the_difference_is_explained_only_where_there_is_one() -> None:
    assert explain_difference(1.0, 0.95, 10) == ""
    assert explain_difference(1.0, 1.05, 10) == ""
    assert "20000.0 µs for each of 10" in explain_difference(1.0, 0.8, 10)
    assert "weights" in explain_difference(1.0, 1.5, 10)
    assert explain_difference(0.0, 1.0, 0) == ""


def test_the_tasks_that_differ_in_place_are_named() -> None:
    same, apart = task(dense(4), name="same"), task(dense(64), count=2, name="apart")
    rows = reports(
        same,
        apart,
        alone={"same": 1e-3, "apart": 1e-3},
        in_place={"same": 1e-3, "apart": 1.5e-3},
    )
    assert {row.name: row.in_place_s for row in rows} == {"same": 1e-3, "apart": 1.5e-3}
    assert explain_difference(4e-3, 3e-3, 3, rows).endswith("Most of it in apart (1000 µs).")
    assert "apart" not in explain_difference(2e-3, 3e-3, 3, rows), "not what makes it faster"


def test_spread_travels() -> None:
    (row,) = reports(task(dense(4), count=2), alone={"task": 1e-3})
    assert row.spread == pytest.approx(0.2)
    assert row.count == 2


def test_calls_name_whose_results_they_read_and_the_memory_in_use() -> None:
    """Two halves are written side by side into one tensor, in place, and read together."""
    half, whole = TensorType((4, 64)), TensorType((8, 64))
    kinds = {"x": half, "one": half, "other": half, "both": whole, "y": whole}
    tensors = {
        name: PlannedTensor(type=kind, root=name, device=LANE.device)
        for name, kind in kinds.items()
    }
    for name, offset in (("one", 0), ("other", half.bytes)):
        tensors[name] = PlannedTensor(
            type=half, root="both", device=LANE.device, offset_bytes=offset
        )
    forms = (PLAIN, PLAIN)
    copies = {kind: copying(kind) for kind in (half, whole)}
    calls = tuple(
        PlannedCall(
            name=f"to {output}",
            workload=copies[kinds[source]],
            candidate=Candidate(implementation="injective", settings=(), forms=forms),
            inputs=(source,),
            output=output,
        )
        for source, output in (("x", "one"), ("x", "other"), ("both", "y"))
    )
    plan = NetworkPlan(
        inputs=("x",), outputs=("y",), tensors=tensors, calls=calls, lanes={"main": LANE}
    )
    known = {"to one": CallResult(in_place_s=2e-6)}
    rows = call_reports(PlanResult(name="tuned", plan=plan, calls=known))
    assert [row.inputs for row in rows] == [(), (), ("to one", "to other")]
    assert [row.alive_bytes for row in rows] == [whole.bytes] * 3
    assert [row.in_place_s for row in rows] == [2e-6, None, None]
    assert (rows[2].shape, rows[2].dtype, rows[2].kind) == ((8, 64), "float32", "kernel")
    assert rows[2].task == copies[whole].key and rows[2].layouts == ("plain", "plain")

"""Task rows for reports: times, work, and what bounds each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core import forms, targets
from tilewright.core.accounts import CallReport
from tilewright.core.results import TaskReport
from tilewright.cost.floors import Peaks, Work, bound, floor_s, raised
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.estimates import work_of
from tilewright.kernels.island import nodes_of, reason_of

_ALIKE = 0.1
_NAMED = 3


def seen_peaks(result: PlanResult, peaks: Peaks, target: targets.Target) -> Peaks:
    """The measured peaks, raised to what the kernels of a network reached."""
    works = _works(result, target)
    times = {key: result.task(key).call_s for key in works}
    return raised(peaks, [(works[key], seconds) for key, seconds in times.items() if seconds])


def task_reports(
    result: PlanResult, peaks: Peaks, target: targets.Target
) -> tuple[TaskReport, ...]:
    """One row per task, largest share of the network's time first, those without any time last."""
    rows: list[TaskReport] = []
    chosen, works = result.plan.candidates, _works(result, target)
    for key, task in result.plan.tasks.items():
        known, work = result.task(key), works[key]
        measurement, check, in_place_s = known.alone, known.check, known.in_place_s
        latency_s = measurement.latency_s if measurement else None
        call_s = known.call_s or 0.0
        least_s = float(floor_s(work, peaks))
        speed = 1.0 / call_s if call_s else 0.0
        rows.append(
            TaskReport(
                name=task.name,
                anchor=task.workload.anchor_name,
                implementation=chosen[key].implementation,
                count=task.count,
                latency_s=latency_s,
                in_place_s=in_place_s,
                share=None,
                gflop_per_s=task.workload.flop * speed / 1e9,
                gbyte_per_s=task.workload.bytes * speed / 1e9,
                bound=bound(work, peaks, call_s),
                roof_s=min(least_s, call_s or least_s),
                key=task.workload.key,
                flop=task.workload.flop,
                algorithm_flop=int(work.flop),
                bytes=task.workload.bytes,
                settings=dict(chosen[key].settings),
                layouts=forms.form_texts(task.forms),
                error=check.error if check else None,
                error_bound=check.bound if check else None,
                spread=measurement.spread if measurement else 0.0,
                nodes=nodes_of(task.workload) or task.nodes,
                island=reason_of(task.workload),
                rival=known.rival.candidate.implementation if known.rival else "",
                rival_s=known.rival.latency_s if known.rival else None,
            )
        )
    return _with_shares(rows, result.timing.latency_s if result.timing is not None else 0.0)


def call_reports(result: PlanResult) -> tuple[CallReport, ...]:
    """One row per call, in order of execution."""
    plan, rows = result.plan, list[CallReport]()
    writers: dict[str, dict[str, str]] = {}
    for call, alive_bytes in zip(plan.calls, _alive_bytes(plan), strict=True):
        known, output = result.call(call.name), plan.tensors[call.output]
        read = [t for index, t in enumerate(call.inputs) if index not in call.constants]
        rows.append(
            CallReport(
                name=call.name,
                task=call.workload.key,
                operator=call.workload.anchor_name,
                implementation=call.candidate.implementation,
                inputs=tuple(dict.fromkeys(w for t in read for w in _writers(plan, writers, t))),
                layouts=forms.form_texts(call.candidate.forms),
                dtype=output.form.element(output.type.dtype),
                shape=output.type.shape,
                latency_s=known.alone.latency_s if known.alone is not None else None,
                in_place_s=known.in_place_s,
                alive_bytes=alive_bytes,
                kind=call.kind,
            )
        )
        writers.setdefault(output.root, {})[call.output] = call.name
    return tuple(rows)


def _writers(
    plan: NetworkPlan, writers: Mapping[str, Mapping[str, str]], tensor: str
) -> Sequence[str]:
    """The calls that wrote a tensor: one, or those that wrote its parts where it is put together
    in place."""
    read = plan.tensors[tensor]
    wrote = writers.get(read.root, {})
    if tensor in wrote:
        return (wrote[tensor],)
    return [name for part, name in wrote.items() if plan.tensors[part].overlaps(read)]


def _alive_bytes(plan: NetworkPlan) -> list[int]:
    """For each call the bytes of intermediate tensors from their first call to their last."""
    alive = np.zeros(len(plan.calls), dtype=np.int64)
    for root, calls in plan.touched.items():
        first = (calls & -calls).bit_length() - 1
        alive[first : calls.bit_length()] += plan.tensors[root].bytes
    return alive.tolist()


def _works(result: PlanResult, target: targets.Target) -> dict[TaskKey, Work]:
    """The least that the algorithm must do which was chosen for each task."""
    return {
        key: work_of(result.plan.tasks[key].workload, candidate.implementation, target)
        for key, candidate in result.plan.candidates.items()
    }


def _with_shares(rows: Sequence[TaskReport], network_s: float) -> tuple[TaskReport, ...]:
    """The rows with their parts of the network's time, the largest first."""
    whole_s = _whole_s(rows, network_s)
    shared = [
        replace(row, share=row.calls_s / whole_s)
        if row.calls_s is not None and whole_s > 0
        else row
        for row in rows
    ]
    return tuple(sorted(shared, key=lambda row: -(row.share or 0.0)))


def outside_tasks(rows: Sequence[TaskReport], network_s: float) -> tuple[float, float]:
    """Seconds of a network that no task takes, and their share: what it takes from one call to the
    next, and whatever disturbed the runs that were timed as a whole. Nothing where no network was
    run."""
    whole_s = _whole_s(rows, network_s)
    rest_s = whole_s - _sum_s(rows)
    return (rest_s, rest_s / whole_s) if whole_s > 0 else (0.0, 0.0)


def _whole_s(rows: Sequence[TaskReport], network_s: float) -> float:
    """What shares are parts of: the network's time, or the tasks' sum where that is more. The
    instrument that tells times in place adds its own, and the machine's speed changes."""
    return max(network_s, _sum_s(rows))


def _sum_s(rows: Sequence[TaskReport]) -> float:
    return sum(row.calls_s or 0.0 for row in rows)


def explain_difference(
    network_s: float,
    tasks_s: float,
    calls: int,
    rows: Sequence[TaskReport] = (),
    between: str = "the virtual machine",
) -> str:
    """Where the network's time goes beyond the sum of its tasks, in words; empty within 10 %.

    `rows` with times in place name the tasks that are slower, or faster, in the network; `between`
    is what takes time from one call to the next.
    """
    if network_s <= 0 or abs(network_s - tasks_s) <= _ALIKE * network_s:
        return ""
    if tasks_s > network_s:
        text = (
            "Timed alone, tasks may read their weights from farther away than in the network, "
            "where some are still in the cache from the last run."
        )
    else:
        per_call_s = (network_s - tasks_s) / max(1, calls)
        text = (
            f"The rest is {per_call_s * 1e6:.1f} µs for each of {calls} kernel calls (activations "
            f"that left the cache since they were written, and {between})."
        )
    apart = sorted(_apart(rows, slower=tasks_s < network_s).items(), key=lambda item: -item[1])
    if apart:
        named = ", ".join(f"{name} ({seconds * 1e6:.0f} µs)" for name, seconds in apart[:_NAMED])
        text += f" Most of it in {named}."
    return text


def _apart(rows: Sequence[TaskReport], *, slower: bool) -> dict[str, float]:
    """By how many seconds, in all calls together, tasks are slower (faster) in place than alone."""
    found: dict[str, float] = {}
    for row in rows:
        if row.latency_s is not None and row.in_place_s is not None:
            difference_s = (row.in_place_s - row.latency_s) * row.count
            found[row.name] = difference_s if slower else -difference_s
    return {name: seconds for name, seconds in found.items() if seconds > 0}

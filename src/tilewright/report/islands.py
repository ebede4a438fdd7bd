"""What is said of the parts of a network that ONNX Runtime computes: islands, and tasks that it was
allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.core.grouping import grouped
from tilewright.core.results import TaskReport
from tilewright.report import shown

if TYPE_CHECKING:
    from tilewright.graph.plan import NetworkPlan

NAME = "onnxruntime"
"""The implementation of what ONNX Runtime computes."""
_MEASURED = "it was measured to be faster there"
_MOST_NODES = 4


def of_tasks(tasks: Iterable[TaskReport]) -> tuple[str, ...]:
    """A sentence for each island among the tasks of a network, and for each task that ONNX Runtime
    computes because it is faster: its nodes, its share of the time, and why. An island with several
    outputs is several tasks."""
    parts = grouped([((t.nodes, _reason(t)), t) for t in tasks if t.implementation == NAME])
    return tuple(
        _sentence(nodes, reason, sum(task.share or 0.0 for task in found) or None)
        for (nodes, reason), found in parts.items()
    )


def of_plan(plan: NetworkPlan) -> tuple[str, ...]:
    """The same of a plan, where nothing was timed."""
    from tilewright.kernels.island import nodes_of, reason_of

    calls = [call for call in plan.calls if call.candidate.implementation == NAME]
    found = {
        (nodes_of(c.workload) or c.nodes, reason_of(c.workload) or _MEASURED): None for c in calls
    }
    return tuple(_sentence(nodes, reason) for nodes, reason in found)


def _reason(task: TaskReport) -> str:
    """Why ONNX Runtime computes a task."""
    if task.island or task.latency_s is None or task.rival_s is None:
        return task.island or _MEASURED
    own, other = shown.seconds(task.latency_s), shown.seconds(task.rival_s)
    return f"it takes {own} for a call, {task.rival} {other}"


def _sentence(nodes: Sequence[str], reason: str, share: float | None = None) -> str:
    named, more = ", ".join(map(repr, nodes[:_MOST_NODES])), len(nodes) - _MOST_NODES
    others = f" and {more} more nodes" if more > 0 else ""
    time = "" if share is None else f", {shown.percent(share)} of the time"
    return f"ONNX Runtime computes {named}{others}{time}: {reason}."

"""What is said of islands, the parts of a network that ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.core.grouping import grouped
from tilewright.core.results import TaskReport
from tilewright.report import shown

if TYPE_CHECKING:
    from tilewright.graph.plan import NetworkPlan

_MOST_NODES = 4


def of_tasks(tasks: Iterable[TaskReport]) -> tuple[str, ...]:
    """A sentence for each island among the tasks of a network: its nodes, its share of the time,
    and why it is one. An island with several outputs is several tasks."""
    parts = grouped([((task.nodes, task.island), task) for task in tasks if task.island])
    return tuple(
        _sentence(nodes, reason, sum(task.share or 0.0 for task in found) or None)
        for (nodes, reason), found in parts.items()
    )


def of_plan(plan: NetworkPlan) -> tuple[str, ...]:
    """The same of a plan, where nothing was timed."""
    from tilewright.kernels.island import nodes_of, reason_of

    calls = [call for call in plan.calls if reason_of(call.workload)]
    found = {(nodes_of(c.workload) or c.nodes, reason_of(c.workload)): None for c in calls}
    return tuple(_sentence(nodes, reason) for nodes, reason in found)


def _sentence(nodes: Sequence[str], reason: str, share: float | None = None) -> str:
    named, more = ", ".join(map(repr, nodes[:_MOST_NODES])), len(nodes) - _MOST_NODES
    others = f" and {more} more nodes" if more > 0 else ""
    time = "" if share is None else f", {shown.percent(share)} of the time"
    return f"ONNX Runtime computes {named}{others}{time}: {reason}."

"""A model cut into kernel calls and distinct tasks, in the layouts of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.core.records import LayoutPlan
from tilewright.graph.arrange import Arrangement, arrange
from tilewright.graph.conversions import with_conversions
from tilewright.graph.network import Graph
from tilewright.graph.tasks import Task, TaskKey, tasks_of
from tilewright.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNetwork:
    """A model, its kernel calls, and its distinct tasks in order of first use.

    `key` identifies the fused network whatever its layouts; `plan` says where those are not the
    default ones.
    """

    model: LoadedModel
    key: str
    arrangement: Arrangement
    tasks: Mapping[TaskKey, Task]
    plan: LayoutPlan = LayoutPlan()

    @property
    def graph(self) -> Graph:
        """The graph whose tensors the calls name."""
        return self.arrangement.network.graph


def laid_out(network: PreparedNetwork, plan: LayoutPlan) -> PreparedNetwork:
    """A network that has the default layouts, in those of a plan."""
    if plan == LayoutPlan():
        return network
    usual = network.arrangement
    forms = {**usual.forms, **plan.forms}
    arrangement = arrange(*with_conversions(usual.network, forms, plan.ports))
    return replace(network, arrangement=arrangement, tasks=tasks_of(arrangement), plan=plan)

"""A model cut into kernel calls, with the plan that it has by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.forms import Form
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array, Graph
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import Task, TaskKey
from tilewright.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNetwork:
    """A model, its fused calls, the default form of every tensor, and the plan that follows, with
    our default settings."""

    model: LoadedModel
    fused: FusedNetwork
    forms: Mapping[str, Form]
    plan: NetworkPlan

    @property
    def key(self) -> str:
        """Identity of the fused network, whatever its forms."""
        return self.fused.key

    @property
    def graph(self) -> Graph:
        """The graph whose tensors the calls name."""
        return self.fused.graph

    @property
    def tasks(self) -> Mapping[TaskKey, Task]:
        """The distinct tasks in default forms, in order of first use."""
        return self.plan.tasks

    @property
    def weight_bytes(self) -> int:
        """All constants together."""
        return sum(array.nbytes for array in self.graph.constants.values())

    def sample_inputs(self, seed: int) -> list[Array]:
        """Random inputs that the model accepts, in the order of the graph's."""
        inputs = random_inputs(self.model.graph, seed)
        return [inputs[name] for name in self.graph.inputs]

"""A network cut into fused calls: what the compiler, the tuner and the reports work on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tilewright.core.fingerprints import canonical_json, digest
from tilewright.graph.network import Graph
from tilewright.graph.workload import Workload

CallKind = Literal["kernel", "conversion", "transfer"]
"""What a call is for: an operator of the network, a tensor in another form, a tensor on another
device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCall:
    """One fused subgraph in its place: which tensors of the graph it reads and writes.

    `inputs` are the graph tensors behind the workload's arguments, in their order; `nodes` are the
    names of the graph's nodes it covers; `name` is a readable name, unique in the network.
    """

    name: str
    workload: Workload
    inputs: tuple[str, ...]
    output: str
    nodes: tuple[str, ...]
    kind: CallKind = "kernel"


@dataclass(frozen=True, kw_only=True)
class FusedNetwork:
    """Calls in execution order over the tensors of `graph`."""

    graph: Graph
    calls: tuple[TaskCall, ...]

    @cached_property
    def workloads(self) -> dict[str, Workload]:
        """The distinct workloads by key, in order of first use."""
        return {call.workload.key: call.workload for call in self.calls}

    @cached_property
    def pinned(self) -> frozenset[str]:
        """Tensors whose memory is given: inputs, outputs, constants."""
        return frozenset((*self.graph.inputs, *self.graph.outputs, *self.graph.constants))

    @cached_property
    def key(self) -> str:
        """Identity of the fused network: its calls and how they are wired, not its weights."""
        wiring = [[c.workload.text, list(c.inputs), c.output] for c in self.calls]
        return digest(canonical_json([wiring, list(self.graph.inputs), list(self.graph.outputs)]))

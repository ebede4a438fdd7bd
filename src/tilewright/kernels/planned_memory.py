"""The memory a compiled network needs while it runs, known before it is compiled.

What lies in memory at the peak: the packed weights, the arena of all intermediates, inputs and
outputs, the workspaces that kernels take for themselves, and the code. TVM cuts workspaces from a
pool per thread that keeps what it ever had; `pooled_bytes` follows it (workspace_pool.cc in its
sources).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.workload import Workload
from tilewright.kernels.base import TakesWorkspace, Workspaces
from tilewright.kernels.registry import implementation

PAGE_BYTES = 4096
CODE_BYTES = 13_500
"""Of a kernel in a compiled library, which is mapped into memory: 11,700 to 16,500 in eight
networks of the zoo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMemory:
    """Bytes by what they are for; `interface_bytes` are those of inputs and outputs, `code_bytes`
    those of the library."""

    arena_bytes: int
    weight_bytes: int
    workspace_bytes: int
    interface_bytes: int
    code_bytes: int

    @property
    def peak_bytes(self) -> int:
        """All of them: they are there at the same time."""
        return sum(astuple(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledNetwork:
    """What only a compiler knows: the kernels' workspaces by symbol, the size of the library."""

    workspaces: Mapping[str, Workspaces]
    library_bytes: int


def workspaces_of(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> Workspaces:
    """What a kernel's implementation says that it takes; nothing where it does not say."""
    spec = implementation(candidate.implementation)
    if not isinstance(spec, TakesWorkspace):
        return Workspaces()
    return spec.workspaces(workload, candidate, target, resources)


def planned_memory(
    plan: NetworkPlan, target: Target, compiled: CompiledNetwork | None = None
) -> PlannedMemory:
    """The memory of a plan on one target, from what was compiled, else from what its
    implementations tell."""
    threads = plan.main.resources.threads
    told = {
        plan.symbol(call): workspaces_of(
            call.workload, call.candidate, target, plan.lanes[call.lane].resources
        )
        for call in plan.calls
    }
    if compiled is not None:
        told |= compiled.workspaces
    calls = [told[plan.symbol(call)] for call in plan.calls]
    constants = [TensorType(constant.shape, constant.dtype) for constant in plan.constants]
    outside = {plan.tensors[name].root for name in (*plan.inputs, *plan.outputs)}
    return PlannedMemory(
        arena_bytes=plan.arena_bytes,
        weight_bytes=sum(constant.bytes for constant in constants),
        workspace_bytes=pooled_bytes(calls, threads),
        interface_bytes=sum(plan.tensors[name].bytes for name in outside),
        code_bytes=compiled.library_bytes if compiled else CODE_BYTES * len(plan.symbols),
    )


def pooled_bytes(calls: Iterable[Workspaces], threads: int) -> int:
    """What the pools of all threads hold after these calls."""
    caller, other = _Pool(), _Pool()
    for call in calls:
        caller.serve((*call.shared, *call.own))
        other.serve(call.own)
    return caller.held_bytes + (threads - 1) * other.held_bytes


class _Pool:
    """A thread's pool: a request gets the smallest free piece that is large enough, else takes the
    place of the largest one."""

    def __init__(self) -> None:
        self._free: list[int] = []

    @property
    def held_bytes(self) -> int:
        return sum(self._free)

    def serve(self, sizes: Iterable[int]) -> None:
        """Buffers that are alive together, then given back."""
        taken = [self._take(-(-max(size, 1) // PAGE_BYTES) * PAGE_BYTES) for size in sizes]
        for piece in taken:
            insort(self._free, piece)

    def _take(self, size: int) -> int:
        place = bisect_left(self._free, size)
        if place < len(self._free):
            return self._free.pop(place)
        if self._free:
            self._free.pop()
        return size

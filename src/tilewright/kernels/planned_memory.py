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
from tilewright.graph.regions import Region, steps_of
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
    steps = [
        _beside(plan, step, told) if isinstance(step, Region) else told[plan.symbol(step)]
        for step in steps_of(plan)
    ]
    constants = [TensorType(constant.shape, constant.dtype) for constant in plan.constants]
    outside = {plan.tensors[name].root for name in (*plan.inputs, *plan.outputs)}
    return PlannedMemory(
        arena_bytes=plan.arena_bytes,
        weight_bytes=sum(constant.bytes for constant in constants),
        workspace_bytes=pooled_bytes(steps, threads),
        interface_bytes=sum(plan.tensors[name].bytes for name in outside),
        code_bytes=compiled.library_bytes if compiled else CODE_BYTES * len(plan.symbols),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWorkspaces:
    """What lanes beside each other take: `shared` buffers of all teams, by the thread that calls
    them and until all lanes have ended; and for each thread those of its calls, in their order."""

    shared: tuple[int, ...]
    threads: tuple[tuple[tuple[int, ...], ...], ...]


def _beside(plan: NetworkPlan, region: Region, told: Mapping[str, Workspaces]) -> LaneWorkspaces:
    shared: list[int] = []
    threads: list[tuple[tuple[int, ...], ...]] = []
    for lane in region.lanes:
        count = plan.lanes[lane[0].lane].resources.threads
        taken = [told[plan.symbol(call)] for call in lane]
        if count == 1:
            threads.append(tuple((*each.shared, *each.own) for each in taken))
        else:
            shared += [size for each in taken for size in each.shared]
            threads += [tuple(each.own for each in taken)] * count
    return LaneWorkspaces(shared=tuple(shared), threads=tuple(threads))


def pooled_bytes(steps: Iterable[Workspaces | LaneWorkspaces], threads: int) -> int:
    """What the pools of all threads hold after these calls, and lanes beside each other; a thread
    that only lanes have is counted, too."""
    pools = [_Pool() for _ in range(threads)]
    for step in steps:
        if isinstance(step, Workspaces):
            step = LaneWorkspaces(shared=step.shared, threads=((step.own,),) * threads)
        pools += [_Pool() for _ in step.threads[len(pools) :]]
        caller, *others = step.threads
        pools[0].serve(step.shared, caller)
        for pool, calls in zip(pools[1:], others, strict=False):
            pool.serve((), calls)
    return sum(pool.held_bytes for pool in pools)


class _Pool:
    """A thread's pool: a request gets the smallest free piece that is large enough, else takes the
    place of the largest one."""

    def __init__(self) -> None:
        self._free: list[int] = []

    @property
    def held_bytes(self) -> int:
        return sum(self._free)

    def serve(self, sizes: Iterable[int], calls: Iterable[Iterable[int]] = ()) -> None:
        """Buffers that are alive together while those of each of the calls are, then given back."""
        taken = [self._take(-(-max(size, 1) // PAGE_BYTES) * PAGE_BYTES) for size in sizes]
        for own in calls:
            self.serve(own)
        for piece in taken:
            insort(self._free, piece)

    def _take(self, size: int) -> int:
        place = bisect_left(self._free, size)
        if place < len(self._free):
            return self._free.pop(place)
        if self._free:
            self._free.pop()
        return size

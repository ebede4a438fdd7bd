"""Plans of graphs without any settings, and a check of the memory they plan."""

from __future__ import annotations

from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.core.targets import threads_alone
from tilewright.graph.fuse import FusedNetwork, fuse
from tilewright.graph.network import Graph
from tilewright.graph.plan import Lane, MemoryPlan, NetworkPlan, aligned
from tilewright.graph.workload import Workload
from tilewright.kernels.plans import lay_out

LANE = Lane(device="made up", resources=threads_alone(1))


def generic(_workload: Workload, forms: tuple[Form, ...]) -> Candidate:
    """What computes anything in any forms."""
    return Candidate(implementation="generic", settings=(), forms=forms)


def arranged(graph: Graph, block: int = 0) -> NetworkPlan:
    """Fused and laid out; every four-dimensional intermediate whose channels allow is blocked."""
    network = fuse(graph)
    return lay_out(network, forms_of(network, block), LANE, generic)


def forms_of(network: FusedNetwork, block: int) -> dict[str, Form]:
    outside = {*network.graph.inputs, *network.graph.outputs}
    forms: dict[str, Form] = dict.fromkeys(outside, PLAIN)
    for call in network.calls:
        shape = network.graph.types[call.output].shape
        fits = block and len(shape) == 4 and shape[1] % block == 0 and call.output not in outside
        forms[call.output] = blocked(block) if fits else PLAIN
    return forms


def place(plan: NetworkPlan, tensor: str) -> tuple[str, int]:
    """The tensor whose memory a tensor lies in, and where in it, in bytes."""
    planned = plan.tensors[tensor]
    return planned.root, planned.offset_bytes


def check_memory(plan: NetworkPlan) -> None:
    """Tensors that are needed at the same call lie apart, unless one is inside the other, or is the
    result that is written over the other; and no call writes over anything else that it reads."""
    needed: dict[str, list[int]] = {}
    for moment, call in enumerate(plan.calls):
        for tensor in (*call.inputs, call.output):
            if tensor in plan.tensors:
                needed.setdefault(plan.tensors[tensor].root, []).append(moment)
    for memory in plan.memory.values():
        sizes = {root: aligned(plan.tensors[root].bytes) for root in memory.offsets}
        names = sorted(sizes)
        for index, one in enumerate(names):
            for other in names[:index]:
                first, second = needed[one], needed[other]
                together = min(first) <= max(second) and min(second) <= max(first)
                a, b = memory.offsets[one], memory.offsets[other]
                apart = a + sizes[one] <= b or b + sizes[other] <= a
                shared = {plan.overwritten.get(root, root) for root in (one, other)}
                assert not together or apart or len(shared) == 1, (one, other)
        for call in plan.calls:
            written = _bytes_of(plan, memory, call.output)
            for index, operand in enumerate(call.inputs):
                over = index in call.overwritable and call.output in plan.overwritten
                if index not in call.constants:
                    read = _bytes_of(plan, memory, operand)
                    met = {*written} & {*read}
                    assert not met or (over and written == read), (call.name, operand)


def _bytes_of(plan: NetworkPlan, memory: MemoryPlan, tensor: str) -> range:
    """Where a tensor lies in an arena; nowhere if it is not in it."""
    planned = plan.tensors[tensor]
    if planned.root not in memory.offsets:
        return range(0)
    begin = memory.offsets[planned.root] + planned.offset_bytes
    return range(begin, begin + planned.bytes)

"""Plans of graphs without any settings, and a check of the memory they plan."""

from __future__ import annotations

from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.core.targets import threads_alone
from tilewright.graph.fuse import FusedNetwork, fuse
from tilewright.graph.network import Graph
from tilewright.graph.plan import Lane, NetworkPlan, aligned
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
    """Tensors that are needed at the same call lie apart, unless one is inside the other."""
    needed: dict[str, list[int]] = {}
    for moment, call in enumerate(plan.calls):
        for tensor in (*call.inputs, call.output):
            if tensor in plan.tensors:
                needed.setdefault(plan.tensors[tensor].root, []).append(moment)
    memory = plan.memory[LANE.device]
    sizes = {root: aligned(plan.tensors[root].type.bytes) for root in memory.offsets}
    names = sorted(sizes)
    for index, one in enumerate(names):
        for other in names[:index]:
            first, second = needed[one], needed[other]
            together = min(first) <= max(second) and min(second) <= max(first)
            a, b = memory.offsets[one], memory.offsets[other]
            apart = a + sizes[one] <= b or b + sizes[other] <= a
            assert not together or apart, (one, other)

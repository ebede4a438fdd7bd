"""Running an arrangement in its planned memory, in numpy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.graph.arrange import Arrangement, arrange
from tilewright.graph.evaluate import run_workload
from tilewright.graph.fuse import fuse
from tilewright.graph.fused import FusedNetwork
from tilewright.graph.layout import to_logical, to_physical
from tilewright.graph.memory import aligned
from tilewright.graph.network import Array, Graph


def arranged(graph: Graph, block: int = 0) -> Arrangement:
    """Fused and arranged; every four-dimensional intermediate whose channels allow is blocked."""
    network = fuse(graph)
    return arrange(network, forms_of(network, block))


def forms_of(network: FusedNetwork, block: int) -> dict[str, Form]:
    outside = {*network.graph.inputs, *network.graph.outputs}
    forms: dict[str, Form] = dict.fromkeys(outside, PLAIN)
    for call in network.calls:
        shape = network.graph.types[call.output].shape
        fits = block and len(shape) == 4 and shape[1] % block == 0 and call.output not in outside
        forms[call.output] = blocked(block) if fits else PLAIN
    return forms


def check_memory(arrangement: Arrangement) -> None:
    """Tensors that are needed at the same call lie apart, unless one is inside the other."""
    graph = arrangement.network.graph
    needed: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for moment, item in enumerate(arrangement.calls):
        kinds = [*(a.type for a in item.call.workload.arguments), item.call.workload.result]
        for tensor, kind in zip((*item.call.inputs, item.call.output), kinds, strict=True):
            needed.setdefault(tensor, []).append(moment)
            sizes[tensor] = kind.bytes
    spans = {tensor: (min(moments), max(moments)) for tensor, moments in needed.items()}
    for tensor in spans:
        place = arrangement.place(tensor)
        assert place.offset_bytes + sizes[tensor] <= graph.types[place.root].bytes
    memory = arrangement.memory
    roots = {r: (memory.offsets[r], aligned(graph.types[r].bytes)) for r in memory.offsets}
    life = {
        root: (
            min(spans[t][0] for t in spans if arrangement.place(t).root == root),
            max(spans[t][1] for t in spans if arrangement.place(t).root == root),
        )
        for root in roots
    }
    names = sorted(roots)
    for index, one in enumerate(names):
        for other in names[:index]:
            together = life[one][0] <= life[other][1] and life[other][0] <= life[one][1]
            (a, a_size), (b, b_size) = roots[one], roots[other]
            assert not together or a + a_size <= b or b + b_size <= a, (one, other)


def run_arranged(arrangement: Arrangement, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every call reads and writes bytes of the arena, as the compiled network will."""
    graph = arrangement.network.graph
    arena = np.full(arrangement.memory.arena_bytes, 0xA5, np.uint8)
    outside: dict[str, Array] = {}
    for name in {*graph.inputs, *graph.outputs}:
        given = inputs.get(name)
        size = graph.types[name].bytes
        array = np.full(size, 0xA5, np.uint8)
        if given is not None:
            array[:] = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
        outside[name] = array

    def memory(tensor: str, kind_bytes: int) -> Array:
        place = arrangement.place(tensor)
        begin = place.offset_bytes
        if place.root in outside:
            return outside[place.root][begin : begin + kind_bytes]
        begin += arrangement.memory.offsets[place.root]
        return arena[begin : begin + kind_bytes]

    for item in arrangement.calls:
        workload = item.call.workload
        arrays = []
        for tensor, argument, form in zip(
            item.call.inputs, workload.arguments, item.forms, strict=False
        ):
            kind = argument.type
            if tensor in graph.constants:
                arrays.append(graph.constants[tensor].reshape(kind.shape))
                continue
            raw = memory(tensor, kind.bytes).view(kind.dtype)
            arrays.append(to_logical(raw, form, kind.shape).copy())
        result = run_workload(workload, arrays)
        packed = to_physical(result, item.forms[-1])
        memory(item.call.output, workload.result.bytes)[:] = packed.reshape(-1).view(np.uint8)
    return {
        name: outside[name].view(graph.types[name].dtype).reshape(graph.types[name].shape)
        for name in graph.outputs
    }

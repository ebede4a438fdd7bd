"""Which tensors of a network lie in memory in bfloat16 where that precision is asked for.

    conv → relu → conv → softmax      the first two results are halves: the convolution that reads
                                      them multiplies halves, and half the bytes move
    image, probabilities              inputs and outputs stay what they are

A tensor is stored so where whoever writes and reads it takes halves without becoming slower, by
estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from tilewright.core.forms import PLAIN, Form, stored_in
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, TakesHalves
from tilewright.kernels.ports import Ports
from tilewright.kernels.registry import applicable, implementation, precise_enough, takes
from tilewright.kernels.spaces import ranked_defaults

_SLOWER = 1.1
"""So many times as long may a kernel take whose neighbours gain by halves."""


def in_halves(
    network: FusedNetwork, forms: Mapping[str, Form], placement: Placement
) -> dict[str, Form]:
    """The forms with as many singles as possible in halves, in the same layouts."""
    types, outside = network.graph.types, {*network.graph.inputs, *network.graph.outputs}
    halved = {
        call.output
        for call in network.calls
        if types[call.output].dtype == "float32"
        and call.output not in outside
        and call.output not in network.pinned
    }
    while True:
        wide = {t for call in network.calls for t in _refused(call, forms, halved, placement)}
        if not wide:
            break
        halved -= wide
    return {t: stored_in(form, HALF) if t in halved else form for t, form in forms.items()}


def alone_in_halves(workload: Workload, forms: Ports, placement: Placement) -> Ports:
    """The forms of an operator that stands for one inside a network: the singles that its fastest
    implementation reads and writes as halves lie so."""
    fastest = ranked_defaults(workload, forms, placement)[0][0]
    spec = implementation(fastest.implementation)
    halved = spec.half_ports(workload) if isinstance(spec, TakesHalves) else frozenset[int]()
    return tuple(stored_in(f, HALF) if i in halved else f for i, f in enumerate(forms))


def _refused(
    call: TaskCall, forms: Mapping[str, Form], halved: set[str], placement: Placement
) -> set[str]:
    """Tensors of a call that are better left in single precision: what it reads, or if that does
    not help, what it writes, too."""
    tensors = (*call.inputs, call.output)
    if not halved.intersection(tensors):
        return set()
    own: Ports = tuple(forms.get(tensor, PLAIN) for tensor in tensors)
    before_s = _fastest_s(call, own, placement)
    for kept in (halved, halved.intersection([call.output])):
        ports = tuple(
            stored_in(form, HALF) if tensor in kept else form
            for tensor, form in zip(tensors, own, strict=True)
        )
        if _fastest_s(call, ports, placement) <= _SLOWER * before_s:
            return halved.intersection(call.inputs) - kept
    return halved.intersection(tensors)


def _fastest_s(call: TaskCall, ports: Ports, placement: Placement) -> float:
    """The least estimate, infinite where nothing takes these forms."""
    specs = applicable(call.workload, placement.target, placement.resources)
    able = (
        precise_enough(s, call.workload, ports, placement) and takes(s, call.workload, ports)
        for s in specs
    )
    return ranked_defaults(call.workload, ports, placement)[0][1] if any(able) else inf

"""Which tensors of a network lie in memory in 16 bits where such a precision is asked for.

    conv → relu → conv → softmax      the first two results are halves: the convolution that reads
                                      them multiplies halves, and half the bytes move
    image, probabilities              inputs and outputs stay what they are

A tensor is stored so where whoever writes and reads it takes halves without becoming slower, by
estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from tilewright.core.forms import PLAIN, Form, stored_in
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16, Coarse, TakesHalves
from tilewright.kernels.halves import half_type, has_half_arithmetic
from tilewright.kernels.ports import Ports, multiplied, single_ports
from tilewright.kernels.registry import applicable, implementation, precise_enough, takes
from tilewright.kernels.spaces import ranked_defaults

_SLOWER = 1.1
"""So many times as long may a kernel take whose neighbours gain by halves."""


def in_halves(
    network: FusedNetwork,
    forms: Mapping[str, Form],
    placement: Placement,
    kept: Collection[str] = (),
    half: str | None = None,
) -> dict[str, Form]:
    """The forms with as many singles as possible in halves, by default of the placement's type, in
    the same layouts; those that are `kept` stay what they are."""
    half = half or half_type(placement)
    types, outside = network.graph.types, {*network.graph.inputs, *network.graph.outputs, *kept}
    halved = {
        call.output
        for call in network.calls
        if types[call.output].dtype == "float32"
        and call.output not in outside
        and call.output not in network.pinned
    }
    if half == FLOAT16 and not has_half_arithmetic(placement.target):
        halved &= _multiplied_in_float16(network, placement)
    while True:
        wide = {t for call in network.calls for t in _refused(call, forms, halved, placement, half)}
        if not wide:
            break
        halved -= wide
    return {t: stored_in(form, half) if t in halved else form for t, form in forms.items()}


def _multiplied_in_float16(network: FusedNetwork, placement: Placement) -> set[str]:
    """What products read that may be of float16: where all other kernels convert it, only these
    gain, by the bytes of their weights."""
    return {
        call.inputs[index]
        for call in network.calls
        for spec in applicable(call.workload, placement.target, placement.resources)
        if isinstance(spec, Coarse) and spec.multiplies_in == FLOAT16
        for index in multiplied(call.workload)
    }


def alone_in_halves(workload: Workload, forms: Ports, placement: Placement) -> Ports:
    """The forms of an operator that stands for one inside a network: all singles are halves where
    that is faster, else those that its fastest implementation reads and writes as such."""
    half, every = half_type(placement), single_ports(workload)

    def within(halved: Collection[int]) -> Ports:
        return tuple(stored_in(f, half) if i in halved else f for i, f in enumerate(forms))

    fastest, seconds = ranked_defaults(workload, forms, placement)[0]
    if _seconds(workload, within(every), placement) < seconds:
        return within(every)
    spec = implementation(fastest.implementation)
    return within(spec.half_ports(workload) if isinstance(spec, TakesHalves) else ())


def _refused(
    call: TaskCall,
    forms: Mapping[str, Form],
    halved: set[str],
    placement: Placement,
    half: str,
) -> set[str]:
    """Tensors of a call that are better left in single precision: what it reads, or if that does
    not help, what it writes, too."""
    tensors = (*call.inputs, call.output)
    if not halved.intersection(tensors):
        return set()
    own: Ports = tuple(forms.get(tensor, PLAIN) for tensor in tensors)
    before_s = _seconds(call.workload, own, placement)
    for kept in (halved, halved.intersection([call.output])):
        ports = tuple(
            stored_in(form, half) if tensor in kept else form
            for tensor, form in zip(tensors, own, strict=True)
        )
        if _seconds(call.workload, ports, placement) <= _SLOWER * before_s:
            return halved.intersection(call.inputs) - kept
    return halved.intersection(tensors)


def _seconds(workload: Workload, ports: Ports, placement: Placement) -> float:
    """The least estimate, infinite where nothing takes these forms."""
    specs = applicable(workload, placement.target, placement.resources)
    able = (
        precise_enough(s, workload, ports, placement) and takes(s, workload, ports) for s in specs
    )
    return ranked_defaults(workload, ports, placement)[0][1] if any(able) else inf

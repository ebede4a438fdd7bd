"""Which dense layers have their weights on codes of eight bits, where people ask for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.kernels.dense_int8_weights import CODED, SPEC
from tilewright.kernels.spaces import ranked_defaults


def codable(network: FusedNetwork, placement: Placement) -> dict[str, str]:
    """By the name of a call the constant that it alone reads, and that it could read on codes."""
    readers = Counter(tensor for call in network.calls for tensor in call.inputs)
    found: dict[str, str] = {}
    for call in network.calls:
        workload = call.workload
        if workload.anchor_name in SPEC.anchors and SPEC.applies(
            workload, placement.target, placement.resources
        ):
            (port,) = SPEC.coded_ports(workload)
            weight = call.inputs[port]
            if weight in network.graph.constants and readers[weight] == 1:
                found[call.name] = weight
    return found


def with_coded_weights(
    network: FusedNetwork,
    forms: Mapping[str, Form],
    placement: Placement,
    kept: Collection[str] = (),
) -> dict[str, Form]:
    """The forms with weights on codes where that is faster by estimate and they are finite; calls
    whose result is `kept` have them in single precision."""
    coded, known = dict(forms), codable(network, placement)
    for call in network.calls:
        weight = known.get(call.name)
        if weight is None or call.output in kept:
            continue
        usual = tuple(forms.get(tensor, PLAIN) for tensor in (*call.inputs, call.output))
        ports = tuple(
            CODED if tensor == weight else form
            for tensor, form in zip((*call.inputs, call.output), usual, strict=True)
        )
        seconds = [ranked_defaults(call.workload, each, placement)[0][1] for each in (usual, ports)]
        if seconds[1] < seconds[0] and np.isfinite(network.graph.constants[weight]).all():
            coded[weight] = CODED
    return coded

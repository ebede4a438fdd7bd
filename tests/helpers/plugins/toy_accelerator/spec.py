"""The one implementation: any operator, in single precision or in the toy's own type."""

from __future__ import annotations

import numpy as np

from tilewright.core.forms import PLAIN, Form
from tilewright.core.layouts import Layout
from tilewright.cost.demand import Demand
from tilewright.kernels.knobs import choice
from tilewright.kernels.streaming import Unpacked, accumulation_error, function_error

from .device import BYTES_PER_CYCLE, CLOCK_HZ, EXTENDED, KIND, SCRATCHPAD_BYTES

TILE = 4
_LAUNCH_CYCLES = 500
_OPERANDS = 3
"""Tiles in the scratchpad at once: two are multiplied into a third."""


def own_form(kind):
    """Tiles for matrices, channels last for images, all in the toy's element type."""
    if kind.dtype != "float32":
        return PLAIN
    if len(kind.shape) == 2 and not any(extent % TILE for extent in kind.shape):
        return Form(Layout(order=(0, 1), blocks=((0, TILE), (1, TILE))), EXTENDED.name)
    if len(kind.shape) == 4:
        return Form(Layout(order=(0, 2, 3, 1)), EXTENDED.name)
    return Form(dtype=EXTENDED.name)


class Systolic(Unpacked):
    """Spec of the toy's kernels."""

    name = "systolic"
    anchors = frozenset({"*"})
    target_kinds = frozenset({KIND})
    builder = "toy"

    def applies(self, workload, target, resources):
        return all(step.operator != "opaque" for step in workload.steps)

    def port_forms(self, workload, target, resources):
        """Data and result each as they are, or in the toy's own form."""
        found = []
        for read in (False, True):
            for written in (False, True):
                ports = [
                    own_form(argument.type) if read and argument.role == "data" else PLAIN
                    for argument in workload.arguments
                ]
                found.append((*ports, own_form(workload.result) if written else PLAIN))
        return tuple(dict.fromkeys(found))

    def knobs(self, workload, target, resources, forms):
        return (choice("tile", (4, 8, 16, 32, 64)),)

    def valid(self, workload, target, resources, forms, settings):
        return _OPERANDS * 4 * settings["tile"] ** 2 <= SCRATCHPAD_BYTES

    def demand(self, workload, target, resources, forms, settings):
        tiles = np.array([settings["tile"] for settings in settings], dtype=np.float64)
        cycles = cycles_of(workload, target, forms, tiles)
        return Demand(pieces=1, cycles=cycles, launches=0, clock_hz=CLOCK_HZ)

    def error_bound(self, workload):
        """Everything is added up in single precision at the least."""
        return accumulation_error(workload) + function_error(workload)


def cycles_of(workload, target, forms, tiles):
    """Moving operands and result, then multiplying; large tiles keep the array busier."""
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    moved = sum(f.size_bytes(k.shape, k.dtype) for f, k in zip(forms, kinds, strict=True))
    computed_in = EXTENDED.name if forms[0].dtype == EXTENDED.name else "float32"
    busy = tiles / (tiles + TILE)
    multiplying = workload.flop / target.operations_per_cycle(computed_in) / busy
    return _LAUNCH_CYCLES + moved / BYTES_PER_CYCLE + multiplying


SPEC = Systolic()

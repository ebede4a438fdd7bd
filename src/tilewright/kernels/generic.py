"""Workloads without an anchor, and what has no other implementation.

Elementwise chains, movements, changes of layout and concatenations read and write everything once,
so memory bandwidth is the bound. Never fast are the general fallback, which computes any workload
of the vocabulary in any type, and operators outside the vocabulary, which TVM's importer builds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.forms import Form, channel_block
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.columns import column
from tilewright.kernels.ports import Ports, Widening, plain_ports
from tilewright.kernels.streaming import Streaming, Unpacked

_CYCLES_OF_AN_OPERATION = 13.5
CYCLES_OF_A_BYTE = 1.35
"""Of code that nobody vectorised."""


ISLAND = "island"
"""The attribute of opaque operators that says why TVM does not build them."""


class Generic(Widening, Unpacked):
    """Spec of the fallback."""

    name = "generic"
    anchors = frozenset({"*"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Everything the vocabulary can say."""
        return all(step.operator != "opaque" for step in workload.steps)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """A pessimistic one, so that whatever else applies is preferred."""
        return Demand(
            pieces=workload.result.elements,
            even=True,
            cycles=workload.flop * _CYCLES_OF_AN_OPERATION + workload.bytes * CYCLES_OF_A_BYTE,
            launches=5.0,
        )


class Opaque(Unpacked):
    """Spec of operators that TVM's importer builds; plain layouts, no knobs."""

    name = "opaque"
    anchors = frozenset({"opaque"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """A single opaque step that is no island."""
        step = workload.steps[0]
        return len(workload.steps) == 1 and step.operator == "opaque" and not step.named.get(ISLAND)

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Plain layouts only."""
        return not any(channel_block(form) for form in forms)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """One thread that moves all bytes, slowly."""
        return Demand(pieces=1, cycles=workload.bytes * CYCLES_OF_A_BYTE, launches=5.0)

    def error_bound(self, workload: Workload) -> float:
        """Nothing is known about the operator, so as loose as a whole network."""
        return 1e-4


_WORD_BYTES = 4
_CYCLES_OF_A_VECTOR_OPERATION = 1.35
"""Of a vector."""
_MOVEMENTS = frozenset(name for name, operator in OPERATORS.items() if operator.movement)


def copied_parts(workload: Workload, forms: tuple[Form, ...]) -> bool:
    """Whether a workload is one concatenation whose parts start at whole channel chunks."""
    if len(workload.steps) != 1 or workload.steps[0].operator != "concat":
        return False
    step, block = workload.steps[0], channel_block(forms[-1])
    whole = block == 0 or step.integer("axis") != 1
    return whole or all(workload.types[i].shape[1] % block == 0 for i in step.inputs)


def _blocks(workload: Workload, forms: tuple[Form, ...]) -> set[int]:
    """Channel blocks of the result and of what is large beside it."""
    large = workload.result.elements // 4
    return {channel_block(forms[-1])} | {
        channel_block(form)
        for argument, form in zip(workload.arguments, forms, strict=False)
        if argument.type.elements > large
    }


class Injective(Widening, Streaming):
    """Spec of kernels that compute each result element from a few elements."""

    name = "injective"
    anchors = frozenset({"elementwise", *_MOVEMENTS})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """No anchor and nothing opaque."""
        return all(
            OPERATORS[step.operator].elementwise or OPERATORS[step.operator].movement
            for step in workload.steps
        )

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Vector width in words of four bytes: in elements, or twice as many as of larger ones."""
        words = target.vector_bytes // _WORD_BYTES
        return (Knob(name="vector", values=(words, 2 * words, 4 * words)),)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Bytes of all operands, three times as many where access is strided since layouts
        differ."""
        vector = column(settings, "vector")
        pieces = np.maximum(1.0, workload.result.elements / (64 * vector))
        kinds = _blocks(workload, forms)
        ordered = all(step.operator != "transpose" for step in workload.steps)
        strided = 1.0 if len(kinds) == 1 and ordered else 3.0
        preferred = 1.0 + 0.02 * np.log2(vector * _WORD_BYTES / target.vector_bytes)
        vectors = workload.flop / target.lanes(workload.computed_in)
        return Demand(
            pieces=pieces,
            cycles=vectors * _CYCLES_OF_A_VECTOR_OPERATION * preferred,
            traffic={"memory": workload.bytes * strided * preferred},
            own_traffic=True,
        )


class CacheWrite(Unpacked):
    """Spec of new rows in a cache. Where the result lies in the cache's own memory, as it does in
    plans, nothing else is touched; elsewhere all of it is copied first."""

    name = "cache_write"
    anchors = frozenset({"cache_write"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """The operator alone."""
        return len(workload.steps) == 1

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain only."""
        return plain_ports(workload)

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Everything is plain."""
        return all(form.layout.is_row_major for form in forms)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """The rows, read and written by one thread."""
        rows = workload.types[workload.steps[0].inputs[1]].bytes
        return Demand(pieces=1, traffic={"memory": 2 * rows}, own_traffic=True)


INJECTIVE, GENERIC, OPAQUE, CACHE_WRITE = SPECS = (
    Injective(),
    Generic(),
    Opaque(),
    CacheWrite(),
)

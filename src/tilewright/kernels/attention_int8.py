"""Attention on codes of eight bits: products of bytes with sums of 32 bits.

As `attention_rows`. Scores are rounded to codes in the buffer of a tile, and so are the shares of
the keys, once a row is added up. With dot-product instructions (see `codes`) keys and values are
copied as words of four codes:

    keys     [chunk of key_vectors, depth/4, lanes]
    values   [chunk of value_vectors, keys/4, lanes]

Zero points stay outside of the products: what they add follows from the sums of a row and of a
column. Without such instructions everything is widened to singles, less its zero point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.attention import ON_CODES, Attention, extents
from tilewright.kernels.base import SINGLE, Knob, anchored
from tilewright.kernels.codes import ONE_QUANTUM, QUAD, offset, rate, terms, usual_dot
from tilewright.kernels.columns import column

(_SINGLE,) = SINGLE
_CYCLES_OF_A_CODING = 6.0
"""Of a vector of scores or shares that is rounded to codes."""
_SHARES = "uint8"
"""The type of the codes of shares, less their zero point."""


def added(settings: Settings, kind: str) -> int:
    """What the instruction adds to queries of a type, or to shares."""
    return offset(settings, kind)


class Int8Attention(Attention):
    """Spec of the kernel."""

    name = "attention_int8"
    anchors = frozenset({ON_CODES})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Always."""
        return True

    def buffers(
        self, workload: Workload, settings: Settings, lanes: int
    ) -> Mapping[str, TensorType]:
        """As of `attention_rows`; by dot products words of keys and values, codes of queries and of
        shares, whole sums, and what zero points add to those of a row and of a column."""
        kept = dict(super().buffers(workload, settings, lanes))
        if terms(settings) == 1:
            return kept
        heads, rows = extents(workload), int(settings["tile_rows"])
        for name in ("columns", "lines"):
            chunks, length, width = kept[name].shape
            kept[name] = TensorType((chunks, ceil(length / QUAD), width), "uint32")
            kept[f"{name}_terms"] = TensorType((chunks, width), "int32")
        return {
            **kept,
            "scaled": TensorType((rows, ceil(heads.depth / QUAD) * QUAD), "uint8"),
            "weights": TensorType(kept["scores"].shape, "uint8"),
            "sums": replace(kept["sums"], dtype="int32"),
            "query_terms": TensorType((rows,), "int32"),
            "share_terms": TensorType((rows,), "int32"),
            "shares": TensorType((lanes,), "int32"),
        }

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """As in single precision, and how bytes are multiplied."""
        dot = usual_dot(target, target.lanes(workload.computed_in), _SHARES)
        return Knob(name="dot", values=(dot,)), *super().knobs(workload, target, resources, forms)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at the rate of products of bytes, and what rounds to codes."""
        found = super().demand(workload, target, resources, forms, settings)
        heads, rows = extents(workload), column(settings, "tile_rows")
        lanes, codings = target.lanes(workload.computed_in), anchored(workload)[1][3].shape[0]
        covered = np.ceil(heads.queries / rows) * rows * heads.batch * heads.heads
        rounded = codings * _CYCLES_OF_A_CODING * covered * ceil(heads.keys / lanes)
        usual = target.operations_per_cycle(self.multiplied_in(workload), tiles=False)
        quick = rate(target, workload.computed_in, dots=True)
        faster = np.array([quick / usual if terms(s) > 1 else 1.0 for s in settings])
        return replace(found, per_cycle=found.per_cycle * faster, cycles=found.cycles + rounded)

    def multiplied_in(self, workload: Workload) -> str:
        """Singles, which have the rate of what is widened."""
        return _SINGLE

    def error_bound(self, workload: Workload) -> float:
        """Sums are exact, and codes of scores those of numpy. An exponential that differs in its
        last bits may round a share to its neighbour."""
        return ONE_QUANTUM


SPEC = Int8Attention()

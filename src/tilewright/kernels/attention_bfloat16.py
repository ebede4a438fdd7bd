"""Attention of singles with products of bfloat16 and sums in single precision.

As `attention_rows`, with queries, keys and values rounded to bfloat16 and multiplied two by two.
Scores and exponentials are singles; exponentials are rounded once they are added up.

    keys     [chunk of key_vectors, depth/2, lanes]
    values   [chunk of value_vectors, keys/2, lanes]

An element of these is a word: two neighbours along the depth of a key, or of two keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.floors import Work
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.attention import Attention, extents
from tilewright.kernels.halves import (
    PAIR,
    OfHalves,
    half_lanes,
    multiplied_work,
    rounding_error,
)


class Bfloat16Attention(OfHalves, Attention):
    """Spec of the kernel."""

    name = "attention_bfloat16"

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Single precision on a CPU with dot products."""
        lanes = target.lanes(workload.computed_in)
        return lanes in half_lanes(target) and super().applies(workload, target, resources)

    def buffers(
        self, workload: Workload, settings: Settings, lanes: int
    ) -> Mapping[str, TensorType]:
        """As of `attention_rows`; words of keys and values, queries and weights of keys as halves,
        an even number of them."""
        singles, rows = super().buffers(workload, settings, lanes), int(settings["tile_rows"])
        words = {
            name: replace(singles[name], shape=(chunks, ceil(length / PAIR), width), dtype="uint32")
            for name in ("columns", "lines")
            for chunks, length, width in [singles[name].shape]
        }
        depth, keys = extents(workload).depth, singles["scores"].shape[1]
        scaled = TensorType((rows, ceil(depth / PAIR) * PAIR), "uint16")
        weights = TensorType((rows, ceil(keys / PAIR) * PAIR), "uint16")
        return {**singles, **words, "scaled": scaled, "weights": weights}

    def error_bound(self, workload: Workload) -> float:
        """As of the sums that scores are: whatever else is rounded weighs less (see
        `rounding_error`)."""
        return rounding_error(extents(workload).depth)

    def least_work(self, workload: Workload, target: Target) -> Work:
        """At the rate of dot products."""
        return multiplied_work(workload, target)


SPEC = Bfloat16Attention()

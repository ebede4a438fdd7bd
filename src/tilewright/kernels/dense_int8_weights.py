"""Dense layer of singles whose weights are codes of eight bits, with a scale for each column.

    result[row, column] = scale[column] · Σ data[row, k] · code[k, column]

As `dense_packed`: products and sums are in single precision, codes are widened as they come. With
few rows the time is that of streaming the weights, of which there are a quarter of the bytes. A
chunk of columns lies as [depth, block], and behind that its scales: the lowest bytes of all, then
the next ones. It computes tasks whose weights are in the form `CODED`, and is exact for the numbers
that codes stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.core.forms import Form, parse_form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Demand
from tilewright.cost.floors import Work, least_work
from tilewright.graph.arrays import codes_of, rounded_to_codes
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.columns import column
from tilewright.kernels.halves import ROUNDING_CYCLES
from tilewright.kernels.matrix_products import PackedDense, product
from tilewright.kernels.ports import Ports, Widening

CODED = parse_form("plain:int8*1")
"""Weights [depth, columns] as codes, a scale for each column."""
SCALE_BYTES = 4
_MOST_ROWS = 32
"""With more of them the bytes of weights hardly count."""
_WIDENING = 2.0
"""Instructions that make a vector of singles of codes."""


def copied(workload: Workload, forms: tuple[Form, ...]) -> bool:
    """Whether the data is copied first: what is stored in halves, or computed here, is not widened
    or computed anew for each column."""
    data = product(workload).data
    return data >= len(forms) - 1 or forms[data].dtype is not None


class CodedWeightsDense(Widening, PackedDense):
    """Spec of the dense layer of singles with weights on codes."""

    name = "dense_int8_weights"

    def coded_ports(self, workload: Workload) -> frozenset[int]:
        """The weights."""
        return frozenset([product(workload).weight])

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Few rows, in single precision, and constant weights that are an argument."""
        dense = product(workload)
        few = dense.batch * dense.rows <= _MOST_ROWS and dense.weight < len(workload.arguments)
        return few and super().applies(workload, target, resources)

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Plain, with weights on codes."""
        weight = product(workload).weight
        return tuple(
            (*ports[:weight], CODED, *ports[weight + 1 :])
            for ports in super().port_forms(workload, target, resources)
        )

    def weight_bytes(self, workload: Workload) -> float:
        """One."""
        return 1.0

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """As in single precision, at a quarter of the weights' bytes; widening codes, and the copy
        of the data."""
        found = super().demand(workload, target, resources, forms, settings)
        rows, copies = column(settings, "tile_rows"), copied(workload, forms)
        elements = workload.types[product(workload).data].elements
        return replace(
            found,
            per_cycle=found.per_cycle * rows / (rows + _WIDENING),
            cycles=copies * ROUNDING_CYCLES * elements,
            launches=1.0 + copies,
        )

    def least_work(self, workload: Workload, target: Target) -> Work:
        """With a byte for each weight."""
        whole, weights = least_work(workload, target), workload.types[product(workload).weight]
        return replace(whole, memory_bytes=whole.memory_bytes - weights.bytes + weights.elements)

    def packed_types(self, workload: Workload, candidate: Candidate) -> Mapping[int, str]:
        """Weights are codes."""
        return {product(workload).weight: "int8"}

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Physical shape of the weights, scales behind them."""
        ((weight, (chunks, depth, block)),) = super().packed_shapes(workload, candidate).items()
        return {weight: (chunks, depth + SCALE_BYTES, block)}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """[K, N] → [N/b, K + 4, b], N padded to whole blocks with zeros, of scale zero."""
        weight, block = product(workload).weight, int(candidate.setting("block"))
        codes, scales = codes_of(constants[weight], axis=1)
        codes = np.pad(codes, ((0, SCALE_BYTES), (0, 0)))
        packed = super().pack(workload, candidate, {**constants, weight: codes})[weight]
        behind = np.zeros(len(packed) * block, "<f4")
        behind[: scales.size] = scales.ravel()
        planes = behind.view(np.int8).reshape(len(packed), block, SCALE_BYTES)
        packed[:, -SCALE_BYTES:] = planes.swapaxes(1, 2)
        return {**constants, weight: packed}

    def rounding_errors(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """What codes of the weights add to the product of `operands`, data and weights."""
        data, weights = operands
        return np.matmul(data, np.subtract(rounded_to_codes(weights, axis=1), weights))


SPEC = CodedWeightsDense()

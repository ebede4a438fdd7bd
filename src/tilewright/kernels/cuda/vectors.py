"""Products of a few vectors with a matrix on GPUs: all of the matrix is read, for little work.

Each column of the result is a row of the matrix, as of a reduction: its threads add up products
with all of the vectors at once, so that the matrix is read once. The terms may be split over blocks
with a second kernel that adds up what they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, Floats, column, whole
from tilewright.kernels.cuda.accesses import SECTOR_BYTES
from tilewright.kernels.cuda.base import ColumnKernels, bytes_of
from tilewright.kernels.cuda.composing import MOST_ELEMENTS, elementwise_after
from tilewright.kernels.cuda.rows import NO_CONFLICTS, Rows, Shares
from tilewright.kernels.rows import Frame

MOST_VECTORS = 4
_WARP, _SMALL_BLOCK = 32, 256
_VECTOR_BYTES, _WORD_BYTES, _LINE_BYTES = 16, 4, 128
_BASE_REGISTERS = 24.0
_LOADS_TOGETHER = 4.0
_STEPS_OF_COMBINING = 0.4
_INSTRUCTIONS_OF_A_LOOP, _INSTRUCTIONS_OF_A_KERNEL = 4.0, 24.0


def vectors_of(workload: Workload) -> int:
    """How many vectors meet each matrix."""
    step, _, result = anchored(workload)
    return prod(result.shape[:-1] if step.operator == "dense" else result.shape[-2:-1])


@lru_cache(maxsize=1024)
def matrix_rows(workload: Workload) -> Rows:
    """The columns of the result as rows of the matrix, for each matrix of the result."""
    step, (_, matrix), result = anchored(workload)
    terms, columns = matrix.shape[-2:]
    if step.operator == "dense":
        return Rows.of(Frame((terms, columns), PLAIN, frozenset({0})))
    batch, turned = result.shape[:-2], bool(step.named["transpose_b"])
    shape = (*batch, terms, columns)
    return Rows.of(Frame(shape, PLAIN, frozenset({len(batch) + (1 if turned else 0)})))


def shares_of(workload: Workload, settings: Settings | Sequence[Settings]) -> Shares:
    """The shares of a setting, or of many."""
    sizes = (whole(settings, name) for name in ("threads", "row_threads", "vector", "split"))
    return Shares(matrix_rows(workload), *sizes)


class VectorKernels(ColumnKernels):
    """Spec of products of a few vectors with a matrix."""

    name = "cuda_vector"
    anchors = frozenset({"dense", "batch_matmul"})
    element_types = SINGLE | {"float16", "float64"}

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Up to four vectors of floating point, and nothing after the product but elementwise
        steps."""
        if workload.anchor is None:
            return False
        _, operands, result = anchored(workload)
        kinds = {operand.dtype for operand in operands}
        fits = all(0 < kind.elements < MOST_ELEMENTS for kind in (*operands, result))
        few = fits and vectors_of(workload) <= MOST_VECTORS
        return few and kinds <= self.element_types and elementwise_after(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`threads` of a block, `row_threads` of a column of the result, lanes of a `vector` along
        the matrix, `split` blocks for the terms."""
        across = matrix_rows(workload).across
        row_threads = (8, 16, 32, 64, 128, 256) if across else (1, 2, 4, 8, 16, 32, 64)
        return (
            Knob(name="threads", values=(64, 128, 256, 512), kind="split"),
            Knob(name="row_threads", values=row_threads, kind="split"),
            Knob(name="vector", values=(4, 2, 1), kind="split"),
            Knob(name="split", values=(1, 2, 4, 8, 16, 32), kind="split"),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Vectors that divide what lies side by side, no more threads than there are terms, and
        shared memory that fits."""
        rows, shares = matrix_rows(workload), shares_of(workload, settings)
        matrix, vector = anchored(workload)[1][1].dtype, shares.vector
        fits = (rows.side % vector == 0) & (vector * bytes_of(matrix) <= _VECTOR_BYTES)
        least = (8 if rows.across else 1) * vector
        fits &= shares.step * shares.split <= np.maximum(2 * rows.length - 1, least)
        fits &= shares.row_threads <= shares.threads
        if rows.across:
            fits &= shares.threads <= np.maximum(shares.row_threads, _SMALL_BLOCK)
        return fits & (_shared_bytes(workload, shares) <= target.limits.static_shared_bytes)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """The matrix once, the vectors from the cache, products, and what combining takes; where
        terms are split, a second kernel."""
        work = _Work(workload, settings)
        first = work.products()
        return Demand(
            pieces=first.count,
            blocks=(first, work.sums()),
            details={
                "columns_per_block": work.block_rows,
                "terms_per_thread": work.turns * (work.vector if work.across else 1.0),
                "sectors_per_request": work.vector * work.size * work.wasted,
                "conflicts": NO_CONFLICTS,
                "predicates": work.shares.comparisons[0],
                "edge_predicates": work.shares.comparisons[1],
                "shared_bytes": work.shared,
            },
        )

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """What each block adds up, where terms are split."""
        shares = shares_of(workload, dict(candidate.settings))
        if shares.split == 1:
            return Workspaces()
        size = shares.of.count * shares.split * vectors_of(workload)
        return Workspaces(shared=(size * bytes_of(accumulator(workload)),))


class _Work:
    """What kernels of many settings do."""

    def __init__(self, workload: Workload, settings: Sequence[Settings]) -> None:
        self.workload, self.vectors = workload, vectors_of(workload)
        self.shares = shares = shares_of(workload, settings)
        self.threads, self.members, self.vector, self.split = (
            column(settings, name) for name in ("threads", "row_threads", "vector", "split")
        )
        self.turns, self.row_blocks, self.block_rows = (
            each.astype(np.float64) for each in (shares.turns, shares.row_blocks, shares.block_rows)
        )
        self.shared = _shared_bytes(workload, shares)
        self.across, self.warps = shares.of.across, self.threads / _WARP
        self.size = bytes_of(anchored(workload)[1][1].dtype)
        self.beside = np.minimum(
            self.members if self.across else self.threads / self.members, _WARP
        )
        self.wasted = np.maximum(1.0, SECTOR_BYTES / (self.beside * self.vector * self.size))
        width = _WARP if self.across else 1
        between = np.where(self.members > width, self.members / width, 0.0)
        exchanged = 2.0 * np.log2(np.minimum(self.members, width))
        exchanged = exchanged + 2.0 * between * (1.0 if self.across else self.vector)
        self.combining = self.vectors * exchanged + _INSTRUCTIONS_OF_A_KERNEL
        self.combined = self.vectors * between * self.threads * self.vector * _WORD_BYTES
        self.written = self.vectors * self.block_rows * bytes_of(workload.result.dtype)

    def products(self) -> Blocks:
        """The first kernel, which reads the matrix."""
        products = self.turns * self.vector * self.vectors
        issued = self.turns * (1.0 + self.vectors + _INSTRUCTIONS_OF_A_LOOP) + products
        read = self.vector * self.size
        lines = np.maximum(_WARP / self.beside, _WARP * read / _LINE_BYTES)
        return Blocks(
            count=self.row_blocks * self.split,
            threads=self.threads,
            registers=_registers(self.workload, self.vector),
            shared_bytes=self.shared,
            operations=2.0 * products * self.threads,
            instructions=self.warps * (issued + self.combining),
            shared_traffic_bytes=self.combined + self.warps * self.turns * lines * _LINE_BYTES,
            traffic_bytes=self.turns * read * self.threads * self.wasted + self.written,
            steps=np.maximum(1.0, np.ceil(self.turns / _LOADS_TOGETHER)) + _STEPS_OF_COMBINING,
            memory_bytes=float(self.workload.bytes),
        )

    def sums(self) -> Blocks:
        """The second kernel, which adds up what blocks left, where terms are split."""
        return Blocks(
            count=np.where(self.split > 1, self.row_blocks, 0.0),
            threads=self.threads,
            registers=_registers(self.workload, self.vector),
            shared_bytes=self.shared,
            instructions=self.warps * self.combining,
            shared_traffic_bytes=self.combined,
            traffic_bytes=self.written * (1.0 + self.split),
            steps=1.0 + _STEPS_OF_COMBINING,
        )


def accumulator(workload: Workload) -> str:
    """The type that is added up in."""
    return element_type(anchored(workload)[1][0].dtype).accumulator


def _registers(workload: Workload, vector: Floats) -> Floats:
    words = bytes_of(accumulator(workload)) / _WORD_BYTES
    return _BASE_REGISTERS + words * vector * (1.0 + vectors_of(workload))


def _shared_bytes(workload: Workload, shares: Shares) -> Floats:
    """Of a block: what its warps, or the threads of a column, exchange."""
    return shares.exchanged * vectors_of(workload) * bytes_of(accumulator(workload))


SPEC = VectorKernels()

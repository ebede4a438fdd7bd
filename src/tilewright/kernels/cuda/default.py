"""TVM's own schedules for GPUs (dlight), which need no tuning and have no knobs: what our kernels
are compared with, and what computes the operators that have no other kernel."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.cuda.base import CudaKernels
from tilewright.kernels.cuda.product_tiles import READERS

_TILE_THREADS, _ROW_THREADS = 128, 256
"""Of a block, by TVM's rules: for products, which it cuts into tiles, and for what is added up
along rows. A block of all else has as many as a GPU takes."""
_OPERATIONS_WASTED = 4.0
"""Such kernels are believed to be far from a peak, so that ours are preferred where they apply."""


class Default(CudaKernels):
    """Spec of the fallback."""

    name = "cuda_default"
    anchors = frozenset({"*"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Everything the vocabulary can say but recurrent layers: TVM leaves their intermediate
        arrays in the kernel, where CUDA has no place for them."""
        return all(step.operator not in ("opaque", "recurrent") for step in workload.steps)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """A pessimistic one: a thread for each element of the result, which reads all it needs, and
        has as many registers as one of the largest block may have."""
        elements, threads = max(1, workload.result.elements), _threads(workload, target)
        count = -(-elements // threads)
        blocks = Blocks(
            count=count,
            threads=threads,
            registers=target.limits.registers // target.limits.block_threads,
            operations=_OPERATIONS_WASTED * workload.flop / count,
            instructions=_OPERATIONS_WASTED * workload.flop / count / 32,
            traffic_bytes=_OPERATIONS_WASTED * (2.0 * workload.flop + workload.bytes) / count,
            steps=max(1.0, workload.flop / elements),
            memory_bytes=workload.bytes,
        )
        return Demand(pieces=count, blocks=(blocks,))


def _threads(workload: Workload, target: Target) -> int:
    if workload.anchor is None:
        return target.limits.block_threads
    return _TILE_THREADS if workload.anchor_name in READERS else _ROW_THREADS


SPEC = Default()

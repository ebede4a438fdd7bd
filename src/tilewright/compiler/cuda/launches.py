"""What a lowered GPU function says: its launch, its shared memory, and its loads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad

from tilewright.compiler.features.indices import CONDITIONAL, evaluated
from tilewright.compiler.statements import children, operands, operator_name
from tilewright.core.gpus import CudaKernel

_WARP = 32
_SECTOR_BYTES = 32
_AXES = ("x", "y", "z")

_COMPARING = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)

Values = npt.NDArray[np.int64]


def read_launch(name: str, function: tirx.PrimFunc) -> CudaKernel:
    """The facts of one device function after TVM split it from its host."""
    walk = _Walk(dict(_extents(function.body)))
    walk.visit(function.body, executions=1, guarded=False)
    loads = walk.loads
    return CudaKernel(
        name=name,
        grid=walk.sizes("blockIdx"),
        block=walk.sizes("threadIdx"),
        loads=loads,
        guarded=walk.guarded,
        comparisons=walk.comparisons,
        stores=walk.stores,
        sectors=walk.sectors / loads if loads else 0.0,
        shared_bytes=walk.shared_bytes,
        parameters=tuple(str(it.name).removesuffix("_ptr") for it in function.params),
    )


def _extents(node: Any) -> Iterator[tuple[Any, tuple[str, int]]]:
    """Each variable that is bound to a thread axis, with the axis' name and its extent."""
    if isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
        axis = node.node
        yield axis.var, (str(axis.thread_tag), int(node.value))
    for child in children(node):
        yield from _extents(child)


class _Walk:
    """Sums over the statements of a function, for one thread."""

    def __init__(self, axes: dict[Any, tuple[str, int]]) -> None:
        self._axes = axes
        self._known: dict[Any, Any] = self._warp()
        self.loads = self.guarded = self.stores = self.sectors = self.comparisons = 0.0
        self.shared_bytes = 0

    def sizes(self, prefix: str) -> tuple[int, int, int]:
        """Extents along x, y and z; 1 where nothing is bound."""
        found = dict(self._axes.values())
        x, y, z = (found.get(f"{prefix}.{axis}", 1) for axis in _AXES)
        return x, y, z

    def visit(self, node: Any, *, executions: float, guarded: bool) -> None:
        """Count a statement and what is in it."""
        if isinstance(node, tirx.For):
            executions *= int(node.extent) if isinstance(node.extent, tirx.IntImm) else 1
        elif isinstance(node, tirx.IfThenElse):
            self._decide(node.condition, executions, guarded)
            guarded = True
        elif isinstance(node, tirx.BufferStore):
            self._read(node.value, executions, guarded)
            self.stores += executions * _is_global(node.buffer)
        elif isinstance(node, tirx.Bind):
            self._read(node.value, executions, guarded)
            self._known[node.var] = evaluated(node.value, self._known)
        elif isinstance(node, tirx.AllocBuffer) and node.buffer.scope().startswith("shared"):
            self.shared_bytes += _bytes(node.buffer)
        for child in children(node):
            self.visit(child, executions=executions, guarded=guarded)

    def _read(self, node: Any, executions: float, guarded: bool) -> None:  # noqa: FBT001
        if isinstance(node, TensorLoad) and _is_global(node.source):
            loads, sectors = self._touched(node)
            self.loads += executions * loads
            self.guarded += executions * loads * guarded
            self.sectors += executions * sectors
        if operator_name(node) == CONDITIONAL:
            condition, *values = node.args
            self._decide(condition, executions, guarded)
            for value in values:
                self._read(value, executions, guarded=True)
            return
        for operand in operands(node):
            self._read(operand, executions, guarded)

    def _decide(self, condition: Any, executions: float, guarded: bool) -> None:  # noqa: FBT001
        self.comparisons += executions * _comparisons(condition)
        self._read(condition, executions, guarded)

    def _touched(self, load: Any) -> tuple[int, int]:
        """The loads that an access becomes, and the sectors that the first warp of the first block
        touches by them: a vector is one load where its elements lie side by side, else one each."""
        (index,) = load.indices
        kind = tvm.DataType(str(load.ty.dtype))
        places = [evaluated(index, self._known, lane) for lane in range(kind.lanes)]
        elements = np.stack([np.broadcast_to(place, _WARP) for place in places])
        sectors = elements * kind.bits // 8 // _SECTOR_BYTES
        if (np.diff(elements, axis=0) == 1).all():
            return 1, len(np.unique(sectors))
        return kind.lanes, sum(len(np.unique(lane)) for lane in sectors)

    def _warp(self) -> dict[Any, Values]:
        """The thread indices of the first warp's lanes; those of a small block repeat."""
        x, y, z = self.sizes("threadIdx")
        lanes = np.arange(_WARP) % (x * y * z)
        at = {
            "threadIdx.x": lanes % x,
            "threadIdx.y": lanes // x % y,
            "threadIdx.z": lanes // x // y,
        }
        return {variable: at[tag] for variable, (tag, _) in self._axes.items() if tag in at}


def _comparisons(node: Any) -> int:
    """How many comparisons a condition makes, of a vector as of one element."""
    return isinstance(node, _COMPARING) + sum(_comparisons(part) for part in operands(node))


def _is_global(buffer: Any) -> bool:
    return str(buffer.scope()) in ("global", "")


def _bytes(buffer: Any) -> int:
    bits = tvm.DataType(str(buffer.dtype)).bits
    return prod(int(extent) for extent in buffer.shape) * bits // 8

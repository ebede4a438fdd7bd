"""The workspaces of compiled kernels, read from what code is generated from."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.instrument import pass_instrument

from tilewright.compiler.pipeline import LAST_PASS, on_stack
from tilewright.compiler.statements import children
from tilewright.kernels.base import Workspaces


@pass_instrument
class WorkspaceReader:
    """An instrument of TVM's passes that notes the workspaces of every kernel it sees; `found` has
    them by the kernel's symbol."""

    def __init__(self) -> None:
        self.found: dict[str, Workspaces] = {}

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Read the kernels once their small buffers have gone to the stack."""
        if info.name != LAST_PASS:
            return
        for variable, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                self.found[variable.name_hint] = _workspaces(function.body)


def _workspaces(body: Any) -> Workspaces:
    found = list(_buffers(body, parallel=False))
    return Workspaces(
        shared=tuple(size for size, parallel in found if not parallel),
        own=tuple(size for size, parallel in found if parallel),
    )


def _buffers(node: Any, *, parallel: bool) -> Iterator[tuple[int, bool]]:
    """Bytes of each buffer from the pool, and whether it is made inside a parallel loop."""
    if isinstance(node, tirx.AllocBuffer) and not on_stack(node):
        yield _bytes(node.buffer), parallel
    parallel = parallel or (isinstance(node, tirx.For) and node.kind == tirx.ForKind.PARALLEL)
    for child in children(node):
        yield from _buffers(child, parallel=parallel)


def _bytes(buffer: Any) -> int:
    """Of a buffer of known size; 0 for any other."""
    extents = [extent for extent in buffer.shape if isinstance(extent, tirx.IntImm)]
    if len(extents) < len(buffer.shape):
        return 0
    kind = tvm.DataType(str(buffer.dtype))
    return prod(int(extent) for extent in extents) * kind.bits * kind.lanes // 8

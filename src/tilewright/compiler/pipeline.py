"""TVM's way from a scheduled module to machine code, with what it leaves undone.

TVM takes every buffer beyond a kilobyte from a pool, register tiles included: a call per tile, and
a pointer that LLVM cannot turn into registers on its own. It keeps the tile in registers only
where it can prove that nothing in the loop touches memory of unknown origin, and a prefetch is
such a thing. Small buffers belong on the stack.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import tvm
from tvm import tirx

from tilewright.compiler.prefetch import with_prefetches
from tilewright.compiler.statements import with_parts
from tilewright.core.targets import Resources, Target

NAME = "tilewright"
GENERATION = 2
"""Raised when the same scheduled kernel is compiled to other code; what was measured of it before
then does not count any more. The first one had TVM's own passes."""
_BASE = "s_tir"
_LEAVE_ALONE = "disable_lower_builtin"
LAST_PASS = "_on_stack"
"""After it, what is left of buffers comes from the pool."""
_STACK_BYTES = 8192
"""Four times the largest register file; threads have megabytes of stack."""


def compiled(module: tvm.IRModule, target: Target, resources: Resources) -> Any:
    """A module of kernels as an executable for a device."""
    generated = tvm.target.Target(target.tvm_target(resources))
    return tvm.compile(with_prefetches(module), generated, tir_pipeline=registered())


@cache
def registered() -> str:
    """The name under which TVM knows the passes."""
    passes: Any = tirx.get_tir_pipeline(_BASE)
    before, finish_host, finish_device = passes

    def finish() -> tvm.transform.Pass:
        return tvm.transform.Sequential([_on_stack, finish_host()])

    tirx.register_tir_pipeline(NAME, lambda: (before, finish, finish_device))
    return NAME


@tirx.transform.prim_func_pass(opt_level=0)
def _on_stack(function: tirx.PrimFunc, _module: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
    return function.with_body(_kept(function.body))


def _kept(node: Any) -> Any:
    if not isinstance(node, tirx.AllocBuffer):
        return with_parts(node, _kept)
    kind = tvm.DataType(str(node.buffer.dtype))
    extents = [extent for extent in node.buffer.shape if isinstance(extent, tirx.IntImm)]
    if len(extents) < len(node.buffer.shape):
        return node
    bits = prod(int(extent) for extent in extents) * kind.bits * kind.lanes
    if bits > 8 * _STACK_BYTES:
        return node
    return tirx.AllocBuffer(node.buffer, {_LEAVE_ALONE: tirx.IntImm("bool", 1)})


def on_stack(node: tirx.AllocBuffer) -> bool:
    """Whether a buffer was put on the stack, after `LAST_PASS`."""
    return _LEAVE_ALONE in node.annotations

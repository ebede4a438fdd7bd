"""Asynchronous copies from memory to shared memory (PTX ISA, `cp.async`, from sm_80 on).

    copied(address_of(tile[at]), address_of(x[i]), 4, [i < n])    16 bytes, zeros where i ≥ n
    grouped()
    awaited(1)                              all but the youngest group of this thread are there

What other threads copied is there behind a barrier that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.script.ir_builder import tirx as build

Expr = Any
_COPY = """
__device__ __forceinline__ void copied_{bytes}(float* into, const float* from, int size) {{
  unsigned int at = (unsigned int)__cvta_generic_to_shared(into);
  asm volatile("cp.async.{cached}.shared.global [%0], [%1], {bytes}, %2;"
    :: "r"(at), "l"(from), "r"(size) : "memory");
}}
"""
_GROUP = """
__device__ __forceinline__ void copies_grouped() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
"""
_WAIT = """
__device__ __forceinline__ void copies_awaited() {{
  asm volatile("cp.async.wait_group {younger};" ::: "memory");
}}
"""
_SINGLE_BYTES, _WIDEST = 4, 16
"""Bytes of a single; of a copy that passes the first-level cache by."""


def copied(into: Expr, source: Expr, singles: int, inside: Sequence[Expr]) -> None:
    """Begin to copy 1, 2 or 4 singles between two addresses; zeros where not all conditions hold,
    and then nothing is read."""
    size = singles * _SINGLE_BYTES
    text = _COPY.format(bytes=size, cached="cg" if size == _WIDEST else "ca")
    taken = tirx.const(size, "int32")
    if inside:
        taken = tirx.if_then_else(tirx.all(*inside), taken, tirx.const(0, "int32"))
    call = cuda_func_call(f"copied_{size}", into, source, taken, source_code=text)
    build.evaluate(call)


def grouped() -> None:
    """End a group of this thread's copies, which may be without any."""
    build.evaluate(cuda_func_call("copies_grouped", source_code=_GROUP))


def awaited(younger: int) -> None:
    """Wait for all groups of this thread but so many that began last."""
    text = _WAIT.format(younger=younger)
    build.evaluate(cuda_func_call("copies_awaited", source_code=text))

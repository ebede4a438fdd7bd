"""What a machine can reach: multiply-adds from registers, and bytes read from beyond the caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import perf_counter

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule

from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target
from tilewright.cost.floors import MEASURED
from tilewright.graph.network import TensorType

_ROWS, _VECTORS, _DEPTH, _REPEATS = 12, 2, 128, 2000
_STREAM_BYTES = 256 << 20
_STREAMS = 8
_CACHE_REPEATS = 200
_TRIES, _ENOUGH = 15, 5
"""Calls at most, and how many in a row without a gain of 1 % end them."""

Fastest = Callable[[tvm.IRModule, Sequence[TensorType]], float]
"""Seconds of the fastest of some calls of a module's `main` on operands of these types."""


def measured_peaks(
    target: Target, resources: Resources, fastest: Fastest | None = None
) -> dict[str, float]:
    """What a device reaches, by the database's names; `fastest` runs the kernels, else locally.

    The second cache is read again and again by each
    thread, memory once, as an array larger than the private caches.
    """
    run = fastest or partial(_fastest, target, resources)
    cache_bytes = max(target.cache_bytes(2) // 2, 64 << 10)
    memory_bytes = _STREAM_BYTES // resources.threads
    lanes, threads = target.lanes(MEASURED), resources.threads
    return {
        "flop_per_s": _flop_per_s(threads, lanes, run),
        "bytes_per_s": _bytes_per_s((threads, memory_bytes, 1), lanes, run),
        "cache_bytes_per_s": _bytes_per_s((threads, cache_bytes, _CACHE_REPEATS), lanes, run),
    }


def _flop_per_s(threads: int, lanes: int, fastest: Fastest) -> float:
    """Operations per second of a register tile whose operands lie in level 1."""
    wide = _VECTORS * lanes
    a = te.placeholder((threads, _DEPTH, _ROWS), MEASURED, name="a")
    b = te.placeholder((threads, _DEPTH, wide), MEASURED, name="b")
    axes = [te.reduce_axis((0, _REPEATS), "again"), te.reduce_axis((0, _DEPTH), "depth")]
    c = te.compute(
        (threads, _ROWS, wide),
        lambda thread, row, lane: te.sum(
            a[thread, axes[1], row] * b[thread, axes[1], lane], axis=axes
        ),
        name="c",
    )
    seconds = _seconds([a, b, c], lanes, fastest)
    return 2.0 * threads * _ROWS * wide * _REPEATS * _DEPTH / seconds


def _bytes_per_s(read: tuple[int, int, int], lanes: int, fastest: Fastest) -> float:
    """Bytes per second when some threads read so many bytes each, so many times, in rows of several
    vectors."""
    threads, thread_bytes, repeats = read
    wide = lanes * _STREAMS
    rows = thread_bytes // element_type(MEASURED).bytes // wide
    x = te.placeholder((threads, rows, wide), MEASURED, name="x")
    axes = [te.reduce_axis((0, repeats), "again"), te.reduce_axis((0, rows), "row")]
    y = te.compute(
        (threads, wide),
        lambda thread, lane: te.sum(x[thread, axes[1], lane], axis=axes),
        name="y",
    )
    size_bytes = TensorType((threads, rows, wide), MEASURED).bytes
    return repeats * size_bytes / _seconds([x, y], lanes, fastest)


def _seconds(tensors: Sequence[te.Tensor], lanes: int, fastest: Fastest) -> float:
    """Of a kernel that adds up in registers: threads outside, the last spatial axis in vectors."""
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func(tensors)}))
    block = schedule.get_sblock(tensors[-1].op.name)
    local = schedule.cache_write(block, 0, "local")
    thread, *rows, lane, outer, inner = schedule.get_loops(block)
    vector, within = schedule.split(lane, [None, lanes])
    schedule.reorder(thread, outer, inner, *rows, vector, within)
    schedule.parallel(thread)
    for loop in (*rows, vector):
        schedule.unroll(loop)
    schedule.vectorize(within)
    schedule.reverse_compute_at(local, thread)
    schedule.decompose_reduction(block, outer)
    kinds = [TensorType(tuple(map(int, t.shape)), str(t.dtype)) for t in tensors]
    return fastest(schedule.mod, kinds)


def _fastest(
    target: Target, resources: Resources, module: tvm.IRModule, operands: Sequence[TensorType]
) -> float:
    call = tvm.compile(module, tvm.target.Target(target.tvm_target(resources))).jit()["main"]
    tensors = [tvm.runtime.empty(kind.shape, kind.dtype) for kind in operands]
    for tensor in tensors:
        np.from_dlpack(tensor)[...] = 1e-3
    call(*tensors)
    best_s, idle = inf, 0
    for _ in range(_TRIES):
        began = perf_counter()
        call(*tensors)
        took_s = perf_counter() - began
        idle = 0 if took_s < 0.99 * best_s else idle + 1
        best_s = min(best_s, took_s)
        if idle == _ENOUGH:
            break
    return best_s

"""What a machine can reach: multiply-adds from registers, and bytes read from beyond the caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule

from tilewright.core.element_types import element_type
from tilewright.core.targets import Resources, Target
from tilewright.cost.floors import MEASURED
from tilewright.graph.tensor import TensorType

_ROWS, _VECTORS, _DEPTH, _REPEATS = 12, 2, 128, 2000
_STREAM_BYTES = 256 << 20
_STREAMS = 8
_CACHE_REPEATS = 200
_TRIES = 15

Fastest = Callable[[tvm.IRModule, Sequence[TensorType]], float]
"""Seconds of the fastest of some calls of a module's `main` on operands of these types."""


def measured_peaks(
    target: Target, resources: Resources, fastest: Fastest | None = None, dtype: str = MEASURED
) -> dict[str, float]:
    """What a device reaches, by the database's names; `fastest` runs the kernels, else locally.

    `dtype` is a type that kernels compute in.
    """
    run = fastest or partial(_fastest, target, resources)
    return {
        "flop_per_s": peak_flop_per_s(target, resources, run, dtype),
        "bytes_per_s": memory_bytes_per_s(target, resources, run, dtype),
        "cache_bytes_per_s": cache_bytes_per_s(target, resources, run, dtype),
    }


def peak_flop_per_s(target: Target, resources: Resources, fastest: Fastest, dtype: str) -> float:
    """Operations per second of a register tile whose operands lie in level 1."""
    lanes = _VECTORS * target.lanes(dtype)
    a = te.placeholder((resources.threads, _DEPTH, _ROWS), dtype, name="a")
    b = te.placeholder((resources.threads, _DEPTH, lanes), dtype, name="b")
    again = te.reduce_axis((0, _REPEATS), "again")
    depth = te.reduce_axis((0, _DEPTH), "depth")
    c = te.compute(
        (resources.threads, _ROWS, lanes),
        lambda thread, row, lane: te.sum(
            a[thread, depth, row] * b[thread, depth, lane], axis=[again, depth]
        ),
        name="c",
    )
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([a, b, c])}))
    block = schedule.get_sblock("c")
    local = schedule.cache_write(block, 0, "local")
    thread, row, lane, outer, inner = schedule.get_loops(block)
    vector, within = schedule.split(lane, [None, target.lanes(dtype)])
    schedule.reorder(thread, outer, inner, row, vector, within)
    schedule.parallel(thread)
    schedule.unroll(row)
    schedule.unroll(vector)
    schedule.vectorize(within)
    schedule.reverse_compute_at(local, thread)
    schedule.decompose_reduction(block, outer)
    shapes = [
        (resources.threads, _DEPTH, _ROWS),
        (resources.threads, _DEPTH, lanes),
        (resources.threads, _ROWS, lanes),
    ]
    seconds = fastest(schedule.mod, [TensorType(shape, dtype) for shape in shapes])
    return 2.0 * resources.threads * _ROWS * lanes * _REPEATS * _DEPTH / seconds


def memory_bytes_per_s(target: Target, resources: Resources, fastest: Fastest, dtype: str) -> float:
    """Bytes per second when all threads read an array larger than the private caches."""
    read = _read_type(target, resources, _STREAM_BYTES // resources.threads, dtype)
    return _read_bytes_per_s(target, read, 1, fastest)


def cache_bytes_per_s(target: Target, resources: Resources, fastest: Fastest, dtype: str) -> float:
    """Bytes per second when each thread reads again and again what fits its private cache."""
    thread_bytes = max(target.cache_bytes(2) // 2, 64 << 10)
    read = _read_type(target, resources, thread_bytes, dtype)
    return _read_bytes_per_s(target, read, _CACHE_REPEATS, fastest)


def _read_type(target: Target, resources: Resources, thread_bytes: int, dtype: str) -> TensorType:
    """As many bytes for each thread, in rows of several vectors."""
    lanes = target.lanes(dtype) * _STREAMS
    rows = thread_bytes // element_type(dtype).bytes // lanes
    return TensorType((resources.threads, rows, lanes), dtype)


def _read_bytes_per_s(target: Target, read: TensorType, repeats: int, fastest: Fastest) -> float:
    threads, rows, lanes = read.shape
    x = te.placeholder(read.shape, read.dtype, name="x")
    again = te.reduce_axis((0, repeats), "again")
    row = te.reduce_axis((0, rows), "row")
    y = te.compute(
        (threads, lanes),
        lambda thread, lane: te.sum(x[thread, row, lane], axis=[again, row]),
        name="y",
    )
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([x, y])}))
    block = schedule.get_sblock("y")
    local = schedule.cache_write(block, 0, "local")
    thread, lane, outer, inner = schedule.get_loops(block)
    vector, within = schedule.split(lane, [None, target.lanes(read.dtype)])
    schedule.reorder(thread, outer, inner, vector, within)
    schedule.parallel(thread)
    schedule.unroll(vector)
    schedule.vectorize(within)
    schedule.reverse_compute_at(local, thread)
    schedule.decompose_reduction(block, outer)
    result = TensorType((threads, lanes), read.dtype)
    return repeats * read.bytes / fastest(schedule.mod, [read, result])


def _fastest(
    target: Target, resources: Resources, module: tvm.IRModule, operands: Sequence[TensorType]
) -> float:
    call = tvm.compile(module, tvm.target.Target(target.tvm_target(resources))).jit()["main"]
    filled = [np.full(kind.shape, 1e-3, element_type(kind.dtype).numpy) for kind in operands]
    tensors = [tvm.runtime.tensor(array) for array in filled]
    call(*tensors)
    samples = []
    for _ in range(_TRIES):
        began = perf_counter()
        call(*tensors)
        samples.append(perf_counter() - began)
    return min(samples)

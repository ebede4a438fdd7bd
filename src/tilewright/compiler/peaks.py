"""What a machine can reach: multiply-adds from registers, and bytes read from beyond the caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule

from tilewright.core.targets import Resources, Target

_ROWS, _VECTORS, _DEPTH, _REPEATS = 12, 2, 128, 2000
_STREAM_BYTES = 256 << 20
_STREAMS = 8
_CACHE_REPEATS = 200
_TRIES = 15

Fastest = Callable[[tvm.IRModule, Sequence[tuple[int, ...]]], float]
"""Seconds of the fastest of some calls of a module's `main` on single-precision operands."""


def measured_peaks(
    target: Target, resources: Resources, fastest: Fastest | None = None
) -> dict[str, float]:
    """What a device reaches, by the database's names; `fastest` runs the kernels, else locally."""
    run = fastest or partial(_fastest, target, resources)
    return {
        "flop_per_s": peak_flop_per_s(target, resources, run),
        "bytes_per_s": memory_bytes_per_s(target, resources, run),
        "cache_bytes_per_s": cache_bytes_per_s(target, resources, run),
    }


def peak_flop_per_s(target: Target, resources: Resources, fastest: Fastest) -> float:
    """Single-precision operations per second of a register tile whose operands lie in level 1."""
    lanes = _VECTORS * target.lanes("float32")
    a = te.placeholder((resources.threads, _DEPTH, _ROWS), name="a")
    b = te.placeholder((resources.threads, _DEPTH, lanes), name="b")
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
    vector, within = schedule.split(lane, [None, target.lanes("float32")])
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
    seconds = fastest(schedule.mod, shapes)
    return 2.0 * resources.threads * _ROWS * lanes * _REPEATS * _DEPTH / seconds


def memory_bytes_per_s(target: Target, resources: Resources, fastest: Fastest) -> float:
    """Bytes per second when all threads read an array larger than the private caches."""
    return _read_bytes_per_s(target, resources, _STREAM_BYTES // resources.threads, 1, fastest)


def cache_bytes_per_s(target: Target, resources: Resources, fastest: Fastest) -> float:
    """Bytes per second when each thread reads again and again what fits its private cache."""
    thread_bytes = max(target.cache_bytes(2) // 2, 64 << 10)
    return _read_bytes_per_s(target, resources, thread_bytes, _CACHE_REPEATS, fastest)


def _read_bytes_per_s(
    target: Target, resources: Resources, thread_bytes: int, repeats: int, fastest: Fastest
) -> float:
    lanes = target.lanes("float32") * _STREAMS
    rows = thread_bytes // 4 // lanes
    x = te.placeholder((resources.threads, rows, lanes), name="x")
    again = te.reduce_axis((0, repeats), "again")
    row = te.reduce_axis((0, rows), "row")
    y = te.compute(
        (resources.threads, lanes),
        lambda thread, lane: te.sum(x[thread, row, lane], axis=[again, row]),
        name="y",
    )
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([x, y])}))
    block = schedule.get_sblock("y")
    local = schedule.cache_write(block, 0, "local")
    thread, lane, outer, inner = schedule.get_loops(block)
    vector, within = schedule.split(lane, [None, target.lanes("float32")])
    schedule.reorder(thread, outer, inner, vector, within)
    schedule.parallel(thread)
    schedule.unroll(vector)
    schedule.vectorize(within)
    schedule.reverse_compute_at(local, thread)
    schedule.decompose_reduction(block, outer)
    shapes = [(resources.threads, rows, lanes), (resources.threads, lanes)]
    return repeats * 4 * resources.threads * rows * lanes / fastest(schedule.mod, shapes)


def _fastest(
    target: Target, resources: Resources, module: tvm.IRModule, shapes: Sequence[tuple[int, ...]]
) -> float:
    call = tvm.compile(module, tvm.target.Target(target.tvm_target(resources))).jit()["main"]
    tensors = [tvm.runtime.tensor(np.full(shape, 1e-3, np.float32)) for shape in shapes]
    call(*tensors)
    samples = []
    for _ in range(_TRIES):
        began = perf_counter()
        call(*tensors)
        samples.append(perf_counter() - began)
    return min(samples)

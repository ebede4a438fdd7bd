"""Running and timing single kernels under a protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from tilewright.compiler.build import BuiltKernel
from tilewright.compiler.rewriting import rewriter
from tilewright.core.records import Candidate, Protocol
from tilewright.graph.layout import to_logical, to_physical
from tilewright.graph.sample import argument_limit
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation

_PATTERN = 1 << 20
_MOST_COPIES = 256
_ALIGNED_FLOATS = 16
_GROWTH = 64 << 18
_AGREED, _PATIENCE = 1.1, 3
"""Sampling goes on until the last samples agree within 10 %, for three times as many at most."""
_REWRITTEN = ("float32", "int8", "uint8", "int32")
_SLICE_S = 1e-3
"""A kernel that runs beside another one asks this often whether to go on."""


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: str, limit: int):
    """N(0, 1) for floats, [0, limit) for integers; large arrays repeat a pattern."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == "bool":
        pattern = rng.integers(0, 2, min(count, _PATTERN)).astype(bool)
    elif "int" in dtype:
        pattern = rng.integers(0, limit, min(count, _PATTERN)).astype(dtype)
    else:
        pattern = rng.standard_normal(min(count, _PATTERN), dtype=np.float32).astype(dtype)
    return np.resize(pattern, tuple(shape))


def time_kernel(
    kernel: BuiltKernel, workload: Workload, protocol: Protocol, seed: int, give_up_s: float
) -> list[float]:
    """Seconds per call of each sample; constants rotate through copies.

    A kernel whose warm-up takes longer than `give_up_s` is sampled once and left at that.
    """
    return _samples(_timed(kernel, workload, protocol, seed), protocol, give_up_s)


def repeat_kernel(
    kernel: BuiltKernel, workload: Workload, protocol: Protocol, seed: int, seconds: float
) -> int:
    """Call a kernel for at least so many seconds and once, constants rotating; returns how often.

    Activations stay as they are: writing them anew would take energy of its own.
    """
    sets, _ = _operands(kernel, workload, protocol, seed)
    count, end = 0, perf_counter() + seconds
    while count == 0 or perf_counter() < end:
        kernel.call(*sets[count % len(sets)])
        count += 1
    return count


def keep_kernel_running(
    kernel: BuiltKernel,
    workload: Workload,
    protocol: Protocol,
    seed: int,
    watch: tuple[Callable[[], bool], Callable[[], None]],
) -> int:
    """Call a kernel as for timing, again and again while the first function of `watch` says so; the
    second one is told when the first calls are done. How often it was called."""
    goes_on, begun = watch
    timed = _timed(kernel, workload, protocol, seed)
    once_s = min(timed.seconds(1) for _ in range(max(1, protocol.warmup)))
    begun()
    count, calls = 0, max(1, round(_SLICE_S / max(once_s, 1e-7)))
    while goes_on():
        timed.seconds(calls)
        count += calls
    return count


def _timed(kernel: BuiltKernel, workload: Workload, protocol: Protocol, seed: int) -> _Timed:
    """The kernel on operands as the protocol wants them."""
    sets, activations = _operands(kernel, workload, protocol, seed)
    return _Timed(kernel.call, sets, _before_calls(activations, protocol))


def _operands(
    kernel: BuiltKernel, workload: Workload, protocol: Protocol, seed: int
) -> tuple[list[list[Any]], list[Any]]:
    """Operands and result for call after call, in turn, and those that are activations."""
    limit = argument_limit(workload)
    types = list(kernel.argument_types)
    rotating = [a.role == "constant" for a in workload.arguments] + [False]
    copies = _copies(types, rotating, protocol)
    _POOL.rewind()
    fixed = [
        None if rotates else _POOL.take(shape, dtype, limit, seed)
        for (shape, dtype), rotates in zip(types, rotating, strict=True)
    ]
    activations = [
        t for t, (_, dtype) in zip(fixed[:-1], types, strict=False) if t and dtype in _REWRITTEN
    ]
    sets = [
        [
            _POOL.take(shape, dtype, limit, seed) if tensor is None else tensor
            for tensor, (shape, dtype) in zip(fixed, types, strict=True)
        ]
        for _ in range(copies)
    ]
    return sets, activations


def _before_calls(activations: Sequence[Any], protocol: Protocol) -> Callable[[], None]:
    """What happens before each timed call: activations are written anew, or (`cold`) as much other
    memory as weights rotate through, or (`warm`) nothing."""
    if protocol.activations == "warm":
        return rewriter([])
    if protocol.activations == "cold":
        return _flusher(protocol.rotation_bytes)
    return rewriter(activations)


@cache
def _flusher(size_bytes: int) -> Callable[[], None]:
    """A function that reads one half of so much memory and writes the other, by all threads."""
    return rewriter([tvm.runtime.tensor(np.zeros(size_bytes // 8, np.float32))])


class _Pool:
    """Random single-precision memory that operands are cut from, so that it is filled only once.

    Tensors are views; those of other types are made afresh.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.float32)
        self._used = 0

    def rewind(self) -> None:
        """Start again at the beginning; earlier views stay valid."""
        self._used = 0

    def release(self) -> None:
        """Give the memory back; earlier views keep it while they live."""
        self._memory = np.empty(0, np.float32)
        self._used = 0

    def take(self, shape: Sequence[int], dtype: str, limit: int, seed: int):
        """A tensor of N(0, 1), or of valid integers, at its own place in memory."""
        if dtype != "float32":
            rng = np.random.default_rng(seed)
            return tvm.runtime.tensor(random_array(rng, shape, dtype, limit))
        count = int(np.prod(shape, dtype=np.int64))
        if self._used + count > self._memory.size:
            self._grow(self._used + count, seed)
        view = self._memory[self._used : self._used + count].reshape(tuple(shape))
        self._used += -(-count // _ALIGNED_FLOATS) * _ALIGNED_FLOATS
        return tvm_ffi.from_dlpack(view)

    def _grow(self, count: int, seed: int) -> None:
        size = max(count, min(2 * count, count + _GROWTH))
        block = np.empty(size + _ALIGNED_FLOATS, np.float32)
        skip = (-block.ctypes.data // 4) % _ALIGNED_FLOATS
        self._memory = block[skip : skip + size]
        rng = np.random.default_rng(seed)
        pattern = rng.standard_normal(min(size, _PATTERN), dtype=np.float32)
        for start in range(0, size, pattern.size):
            part = self._memory[start : start + pattern.size]
            part[:] = pattern[: part.size]


_POOL = _Pool()


def _copies(
    types: Sequence[tuple[tuple[int, ...], str]], rotating: Sequence[bool], protocol: Protocol
) -> int:
    size = sum(
        int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        for (shape, dtype), rotates in zip(types, rotating, strict=True)
        if rotates
    )
    if size == 0:
        return 1
    return max(1, min(-(-protocol.rotation_bytes // size), _MOST_COPIES))


class _Timed:
    """Calls of a kernel on rotating operands, each on activations that were just rewritten."""

    def __init__(self, call, sets: list[list], rewrite: Callable[[], None]) -> None:
        self._call = call
        self._sets = sets
        self._rewrite = rewrite
        self._position = 0

    def seconds(self, calls: int) -> float:
        """Mean seconds of `calls` calls, rewriting left out."""
        call, total_s = self._call, 0.0
        for _ in range(calls):
            arguments = self._sets[self._position % len(self._sets)]
            self._position += 1
            self._rewrite()
            began = perf_counter()
            call(*arguments)
            total_s += perf_counter() - began
        return total_s / calls


def _samples(timed: _Timed, protocol: Protocol, give_up_s: float) -> list[float]:
    once_s = min(timed.seconds(1) for _ in range(max(1, protocol.warmup)))
    if once_s > give_up_s:
        return [timed.seconds(1)]
    calls = max(1, min(2_000, round(protocol.sample_s / max(once_s, 1e-7))))
    samples = [timed.seconds(calls) for _ in range(protocol.repeats)]
    while len(samples) < _PATIENCE * protocol.repeats and not _steady(samples[-protocol.repeats :]):
        samples.append(timed.seconds(calls))
    return samples[-protocol.repeats :]


def _steady(samples: Sequence[float]) -> bool:
    """Whether samples agree. The first ones after a pause may run at half the speed until both
    threads have a core each."""
    return max(samples) <= _AGREED * min(samples)


def run_kernel(
    kernel: BuiltKernel,
    workload: Workload,
    candidate: Candidate,
    arrays: Sequence[np.ndarray],
) -> np.ndarray:
    """The kernel's result on logical arrays, as a logical array.

    Gives back the memory that timing keeps: large weights are here in two forms for a while.
    """
    _POOL.release()
    tensors = [
        tvm.runtime.tensor(array) for array in physical_arguments(workload, candidate, arrays)
    ]
    shape, dtype = kernel.argument_types[-1]
    result = tvm.runtime.tensor(np.zeros(shape, dtype))
    kernel.call(*tensors, result)
    return to_logical(result.numpy(), candidate.forms[-1], workload.result.shape)


def physical_arguments(
    workload: Workload, candidate: Candidate, arrays: Sequence[np.ndarray]
) -> Iterator[np.ndarray]:
    """Logical arrays as the kernel takes them: in its layouts, constants packed.

    One after the other, so that whoever copies them needs no memory for all.
    """
    spec = implementation(candidate.implementation)
    constants: Mapping[int, np.ndarray] = {
        index: array
        for index, (array, argument) in enumerate(zip(arrays, workload.arguments, strict=True))
        if argument.role == "constant"
    }
    packed = spec.packed_shapes(workload, candidate)
    physical = dict(spec.pack(workload, candidate, constants)) if packed else {}
    for index, array in enumerate(arrays):
        form = candidate.forms[index]
        value = physical.pop(index) if index in packed else to_physical(array, form)
        yield np.asarray(value, order="C")

"""Running single kernels that are built, and timing them under a protocol.

A kernel that is timed in a loop reads inputs that nobody has written since: every core keeps its
own clean copy. In a network the inputs have just been written, half of them by another core, and
come from its cache. Kernels that read what their own core wrote are faster there. So activations
are written anew before each timed call, by all threads, as the layer before does.

TVM's runtime suffices for all of it where the registry has the kernel that writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule

from tilewright.compiler.operands import HALVES, half_places, physical_operands, random_array
from tilewright.core.element_types import element_type
from tilewright.core.records import Candidate, Protocol
from tilewright.core.timings import Burst
from tilewright.graph.arrays import to_logical
from tilewright.graph.inputs import argument_limit
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload

COPY = "tilewright.copy"
"""The name of the kernel of `copy_module` in TVM's registry, where somebody who has no compiler
put it there."""
Watch = tuple[Callable[[], bool], Callable[[], None]]
_PIECES = 64
"""Pieces of rewriting; threads get contiguous runs of them, as they do of a kernel's outer loop."""
_PATTERN = 1 << 20
_MOST_COPIES = 256
_ALIGNED_FLOATS = 16
_GROWTH = 64 << 18
_AGREED, _PATIENCE = 1.1, 3
"""Sampling goes on until the last samples agree within 10 %, for three times as many at most."""
_REWRITTEN = ("float32", "float16", HALVES, "int8", "uint8", "int32")
_SLICE_S = 1e-3
"""A kernel that runs beside another one asks this often whether to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltKernel:
    """A candidate's kernel compiled in memory; what `builders.base.Kernel` wants.

    `call` takes one tensor per argument (physical shapes) and the result's tensor.
    """

    call: Callable[..., None]
    argument_types: tuple[tuple[tuple[int, ...], str], ...]
    kernel_hash: str
    build_s: float
    workload: Workload
    candidate: Candidate

    def run(self, arrays: Sequence[Array]) -> Array:
        """The result on logical arrays, as a logical array.

        Gives back the memory that timing keeps: large weights are here in two forms for a while.
        """
        _POOL.release()
        there = (tvm.cpu(), self.argument_types[-1])
        return evaluated(self._checked, there, self.workload, self.candidate, arrays)

    def _checked(self, *tensors: Any) -> None:
        """Call it. Raises RuntimeError for operands of other shapes or types than it takes, at
        which the kernel itself does not look: packing is a matter of plug-ins."""
        found = tuple((tuple(map(int, each.shape)), str(each.dtype)) for each in tensors)
        if found != self.argument_types:
            raise RuntimeError(f"the kernel takes {self.argument_types}, and is given {found}")
        self.call(*tensors)

    def time(self, protocol: Protocol, seed: int, give_up_s: float) -> list[float]:
        """Seconds per call of each sample; constants rotate through copies.

        A kernel whose warm-up takes longer than `give_up_s` is sampled once and left at that.
        """
        timer = self._timer(protocol, seed)
        once_s = min(timer(1) for _ in range(max(1, protocol.warmup)))
        if once_s > give_up_s:
            return [timer(1)]
        calls = max(1, min(2_000, round(protocol.sample_s / max(once_s, 1e-7))))
        samples = [timer(calls) for _ in range(protocol.repeats)]
        most = _PATIENCE * protocol.repeats
        while len(samples) < most and not _steady(samples[-protocol.repeats :]):
            samples.append(timer(calls))
        return samples[-protocol.repeats :]

    def repeat(self, protocol: Protocol, seed: int, seconds: float) -> int:
        """Call it for at least so many seconds and once, constants rotating; returns how often.

        Activations stay as they are: writing them anew would take energy of its own.
        """
        sets, _ = self._operands(protocol, seed)
        count, end = 0, perf_counter() + seconds
        while count == 0 or perf_counter() < end:
            self.call(*sets[count % len(sets)])
            count += 1
        return count

    def keep_running(self, protocol: Protocol, seed: int, watch: Watch) -> list[Burst]:
        """Call it as for timing, again and again while the first function of `watch` says so; the
        second one is told when the first calls are done. What it did since, by the millisecond."""
        goes_on, begun = watch
        timer = self._timer(protocol, seed)
        once_s = min(timer(1) for _ in range(max(1, protocol.warmup)))
        begun()
        calls, found = max(1, round(_SLICE_S / max(once_s, 1e-7))), list[Burst]()
        while goes_on():
            began_s = perf_counter()
            busy_s = calls * timer(calls)
            found.append(Burst(began_s, perf_counter(), calls, busy_s))
        return found

    def _timer(self, protocol: Protocol, seed: int) -> Callable[[int], float]:
        """A function that gives the mean seconds of so many calls, on operands in turn. Before each
        of them activations are written anew, or (`cold`) as much other memory as weights rotate
        through, or (`warm`) nothing; that is not timed."""
        sets, activations = self._operands(protocol, seed)
        if protocol.activations == "cold":
            rewrite = _flusher(protocol.rotation_bytes)
        else:
            rewrite = rewriter([] if protocol.activations == "warm" else activations)
        call, turn = self.call, cycle(sets)

        def seconds(calls: int) -> float:
            total_s = 0.0
            for arguments in islice(turn, calls):
                rewrite()
                began = perf_counter()
                call(*arguments)
                total_s += perf_counter() - began
            return total_s / calls

        return seconds

    def _operands(self, protocol: Protocol, seed: int) -> tuple[list[list[Any]], list[Any]]:
        """Operands and result for call after call, in turn, and those that are activations."""
        limit, halves = argument_limit(self.workload), half_places(self.workload, self.candidate)
        types = [
            (shape, HALVES if index in halves else dtype)
            for index, (shape, dtype) in enumerate(self.argument_types)
        ]
        rotating = [a.role == "constant" for a in self.workload.arguments] + [False]
        size_bytes = sum(
            prod(shape) * np.dtype(dtype).itemsize
            for (shape, dtype), rotates in zip(self.argument_types, rotating, strict=True)
            if rotates
        )
        copies = -(-protocol.rotation_bytes // size_bytes) if size_bytes else 1
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
            for _ in range(max(1, min(copies, _MOST_COPIES)))
        ]
        return sets, activations


def _steady(samples: Sequence[float]) -> bool:
    """Whether samples agree. The first ones after a pause may run at half the speed until both
    threads have a core each."""
    return max(samples) <= _AGREED * min(samples)


def copy_module() -> tvm.IRModule:
    """main: copy(source[64, n], target[64, n]) with the first axis in parallel."""
    width = tirx.Var("width", "int32")
    source = te.placeholder((_PIECES, width), "float32", name="source")
    target = te.compute((_PIECES, width), lambda i, j: source[i, j], name="target")
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([source, target])}))
    rows, _ = schedule.get_loops(schedule.get_sblock("target"))
    schedule.parallel(rows)
    return schedule.mod


@cache
def _copy_kernel() -> Any:
    given = tvm_ffi.get_global_func(COPY, allow_missing=True)
    if given is not None:
        return given
    return tvm.compile(copy_module(), tvm.target.Target({"kind": "llvm"})).jit()["main"]


def rewriter(tensors: Sequence[Any]) -> Callable[[], None]:
    """A function that writes tensors anew, with the values they have now, four bytes at a time.

    The last few elements that do not fill the 64 pieces are left alone.
    """
    unit, pairs = 4 * _PIECES, []
    for tensor in tensors:
        content = np.from_dlpack(tensor).reshape(-1).view(np.uint8)
        target = content[: content.size // unit * unit].view(np.float32).reshape(_PIECES, -1)
        if target.size:
            pairs.append((tvm.runtime.tensor(np.array(target)), tvm_ffi.from_dlpack(target)))
    if not pairs:
        return lambda: None
    copy = _copy_kernel()

    def rewrite() -> None:
        for source, target in pairs:
            copy(source, target)

    return rewrite


@cache
def _flusher(size_bytes: int) -> Callable[[], None]:
    """A function that reads one half of so much memory and writes the other, by all threads."""
    return rewriter([tvm.runtime.tensor(np.zeros(size_bytes // 8, np.float32))])


class _Pool:
    """Random single-precision memory that operands are cut from, so that it is filled only once.

    Tensors are views; those of other types are made afresh.
    """

    def __init__(self) -> None:
        self.release()

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
        count = prod(shape)
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
        count = min(size, _PATTERN)
        pattern = np.random.default_rng(seed).standard_normal(count, dtype=np.float32)
        for start in range(0, size, pattern.size):
            part = self._memory[start : start + pattern.size]
            part[:] = pattern[: part.size]


_POOL = _Pool()


def evaluated(
    call: Callable[..., None],
    there: tuple[Any, tuple[tuple[int, ...], str]],
    workload: Workload,
    candidate: Candidate,
    arrays: Sequence[Array],
) -> Array:
    """What a kernel makes of logical arrays, as a logical array; `there` is the device, and the
    physical shape and type of the result."""
    device, (shape, dtype) = there
    operands = physical_operands(workload, candidate, arrays)
    tensors = [tvm.runtime.tensor(array, device) for array in operands]
    result = tvm.runtime.tensor(np.zeros(shape, dtype), device)
    call(*tensors, result)
    array, form = result.numpy(), candidate.forms[-1]
    if form.dtype is None:
        return to_logical(array, form, workload.result.shape)
    stored = array.view(element_type(form.dtype).numpy)
    wide = element_type(workload.result.dtype).numpy
    return to_logical(stored, form, workload.result.shape).astype(wide)

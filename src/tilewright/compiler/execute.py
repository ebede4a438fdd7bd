"""Running compiled networks with the Relax VM, and on which threads."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tilewright.compiler import islands
from tilewright.compiler.network import LIBRARY, TIMED, WEIGHTS, compile_network
from tilewright.core.element_types import element_type
from tilewright.core.errors import DamagedArtifact, InputError, last_line
from tilewright.core.forks import call_native, is_forked
from tilewright.core.scratch import scratch_folder
from tilewright.core.targets import Target
from tilewright.core.timings import Burst
from tilewright.core.weights import StoredTensor, reference_in, stored_tensors
from tilewright.graph.network import TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.tile_permission import tiles_permitted
from tilewright.kernels.plans import packed_constant

_Answer = TypeVar("_Answer")
_USE_GIVEN_CPUS = -2
_GO_ON = 0
"""What an instrument answers for the call to be made as usual."""


_before: set[int] = set()
"""The CPUs on which threads might run that were given a pool since."""


def set_threads(threads: int, cpus: Sequence[int]) -> None:
    """Give the calling thread's pool `threads` threads on `cpus`; before its first kernel.

    The calling thread is one of them. It stays on the first of `cpus`, which the pool leaves free
    for it: TVM would let it run on any of them, where it shares a core with a thread that has no
    other, until the system sees that.
    """
    _before.update(os.sched_getaffinity(0))
    chosen = [str(cpu) for cpu in cpus[:threads]]
    given = (_USE_GIVEN_CPUS, threads, chosen) if len(chosen) == threads else (1, threads)
    tvm_ffi.get_global_func("runtime.config_threadpool")(*given)
    if len(chosen) == threads:
        _allow(cpus[:1])
    islands.use_threads(threads, cpus)


def _allow(cpus: Iterable[int]) -> None:
    """Let the calling thread run on these CPUs alone; where it may not, it stays where it is."""
    with suppress(OSError):
        os.sched_setaffinity(0, cpus)


@contextmanager
def on_all_cpus() -> Generator[None]:
    """While nothing is timed: compile on all CPUs where the calling thread might run before it was
    given a pool. On the first of the pool's it would share with each process that does the same,
    and a compiler that it starts would stay there as well."""
    tied = os.sched_getaffinity(0)
    _allow(_before or tied)
    try:
        yield
    finally:
        _allow(tied)


_cpu = ctypes.PyDLL(None).sched_getcpu
"""The CPU that the calling thread is on."""

_pool = threading.local()
"""What the calling thread's pool was last set to, once it was: `size` are its threads and CPUs."""


class Caller:
    """Calls functions where TVM's pool has so many threads on these CPUs, one at a time.

    The pool belongs to the thread that calls: each thread that does has one of its own, which is
    sized at its first call. A thread that is not the only one of its pool begins on the first of
    the CPUs, but is not tied to it as by `set_threads`: it may run where it might before.
    """

    def __init__(self, threads: int, cpus: Sequence[int]) -> None:
        self._size = (threads, tuple(cpus[:threads]))
        self._own = cpus[:1] if 1 < threads <= len(cpus) else ()
        self._turn = threading.Lock()

    def __call__(self, function: Callable[[], _Answer]) -> _Answer:
        """What the function answers or raises."""
        if is_forked():
            # whoever had the turn in the parent never gives it back here; one thread needs none
            return call_native(lambda: self._call(function))
        with self._turn:
            return self._call(function)

    def _call(self, function: Callable[[], _Answer]) -> _Answer:
        known = getattr(_pool, "size", None) == self._size
        if not known or (self._own and _cpu() not in self._own):
            before = os.sched_getaffinity(0)
            if known:
                _allow(self._own)
            else:
                set_threads(*self._size)
                _pool.size = self._size
            _allow(before)
        return function()


def _load_library(path: Path) -> Any:
    """Load by a name never used before.

    The dynamic loader takes a path it has loaded from for the same library, although the file was
    replaced meanwhile; `tvm.runtime.load_module` would resolve the link.
    """
    with scratch_folder() as scratch:
        link = scratch / path.name
        link.symlink_to(path.resolve())
        return tvm_ffi.load_module(str(link))


@contextmanager
def undamaged(folder: Path) -> Generator[None]:
    """What reading a compiled network raises comes out as DamagedArtifact."""
    try:
        yield
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        raise DamagedArtifact(folder, last_line(error)) from error


def check_constants(machine: Any, folder: Path, order: Sequence[str]) -> None:
    """Raise DamagedArtifact unless the last parameters of a library are the constants `order`."""
    arity = int(machine.module["get_function_arity"]("main"))
    name_of = machine.module["get_function_param_name"]
    last = range(max(0, arity - len(order)), arity)
    if [str(name_of("main", index)) for index in last] != list(order):
        raise DamagedArtifact(folder, f"{LIBRARY} does not take the constants of the manifest")


class LoadedNetwork:
    """A network in memory: inputs in the model's order in, outputs in order out."""

    def __init__(self, library: Any, weights: dict[str, Any], order: Sequence[str]) -> None:
        tiles_permitted()
        self._library = library
        self._machine = relax.VirtualMachine(library, tvm.cpu())
        self._weights = [weights[name] for name in order]

    @classmethod
    def open(
        cls, folder: Path, order: Sequence[str], pool: WeightsPool | None = None
    ) -> LoadedNetwork:
        """Load what `compile` wrote; `order` are the constants' names in parameter order. Networks
        that share their weights hold them in memory once when they have one `pool`.

        Raises ModelError when the library takes others, or a file is damaged.
        """
        with undamaged(folder):
            load = load_weights if pool is None else pool.load
            network = cls(_load_library(folder / LIBRARY), load(folder / WEIGHTS), order)
        check_constants(network._machine, folder, order)
        return network

    @classmethod
    def compiled(
        cls,
        plan: NetworkPlan,
        target: Target,
        constants: Mapping[str, np.ndarray],
        shared: dict[bytes, Any] | None = None,
        *,
        timed: bool = False,
    ) -> LoadedNetwork:
        """Compile a plan and load it without a file in between; `constants` are the model's.
        Networks that are given one dictionary as `shared` have equal packed weights only once. One
        that is `timed` can give `marks`."""
        executable, _ = compile_network(plan, target, timed=timed)
        memory = _HugePages()
        weights = {
            stored.name: memory.weight(packed_constant(stored, constants), shared)
            for stored in plan.constants
        }
        return cls(executable.jit(), weights, plan.constant_names)

    @property
    def input_count(self) -> int:
        """How many parameters come before the constants."""
        return int(self._machine.module["get_function_arity"]("main")) - len(self._weights)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once. Raises InputError where an index is out of range."""
        return [tensor.numpy() for tensor in self.run_held(_tensors(inputs))]

    def run_held(self, tensors: Sequence[Any]) -> list[Any]:
        """Run once on tensors of `held`, in whose memory the network may write, and nothing is
        copied; the outputs as tensors. Raises InputError where an index is out of range."""
        result = self._run(tensors)
        return [result] if hasattr(result, "numpy") else list(result)

    def time(self, inputs: Sequence[np.ndarray], repeats: int, warmup: int) -> list[float]:
        """Seconds of each call, conversion of inputs and outputs left out."""
        tensors = _tensors(inputs)
        for _ in range(warmup):
            self._run(tensors)
        samples = []
        for _ in range(repeats):
            began = perf_counter()
            self._run(tensors)
            samples.append(perf_counter() - began)
        return samples

    def repeat(self, inputs: Sequence[np.ndarray], seconds: float) -> int:
        """Run again and again, for at least so many seconds and once; returns how often."""
        tensors = _tensors(inputs)
        count, end = 0, perf_counter() + seconds
        while count == 0 or perf_counter() < end:
            self._run(tensors)
            count += 1
        return count

    def keep_running(
        self, inputs: Sequence[np.ndarray], goes_on: Callable[[], bool], begun: Callable[[], None]
    ) -> list[Burst]:
        """Run again and again while `goes_on` says so; `begun` is told after the first run. Every
        run since."""
        tensors, found = _tensors(inputs), list[Burst]()
        self._run(tensors)
        begun()
        while goes_on():
            began_s = perf_counter()
            self._run(tensors)
            end_s = perf_counter()
            found.append(Burst(began_s, end_s, 1, end_s - began_s))
        return found

    def time_calls(self, inputs: Sequence[np.ndarray], repeats: int) -> list[tuple[str, float]]:
        """Symbol and median seconds of every call in its place in the network, in order.

        Calls of the machine's own functions are among them.
        """
        tensors, began = _tensors(inputs), [0.0]
        runs: list[list[tuple[str, float]]] = []

        def note(_function: object, symbol: str, before: bool, *_others: object) -> int:  # noqa: FBT001
            """Its own handling counts: a few microseconds."""
            now = perf_counter()
            if not before:
                runs[-1].append((str(symbol), now - began[0]))
            began[0] = perf_counter()
            return _GO_ON

        watched = relax.VirtualMachine(self._library, tvm.cpu())
        watched.set_instrument(note)
        for _ in range(repeats + 1):
            islands.enter(self)
            runs.append([])
            watched["main"](*tensors, *self._weights)
        return [(calls[0][0], median(s for _, s in calls)) for calls in zip(*runs[1:], strict=True)]

    def marks(self, inputs: Sequence[np.ndarray], rows: int, repeats: int) -> list[np.ndarray]:
        """The marks of so many runs, behind one that is not counted, of a network that was compiled
        `timed`: where `graph.marks.Marks` says, which has so many `rows`."""
        tensors, found = _tensors(inputs), list[np.ndarray]()
        for _ in range(repeats + 1):
            islands.enter(self)
            (kept,) = _tensors([np.zeros((rows, 2), np.int64)])
            self._machine[TIMED](*tensors, kept, *self._weights)
            found.append(kept.numpy())
        return found[1:]

    def _run(self, tensors: Sequence[Any]) -> Any:
        islands.enter(self)
        try:
            return self._machine["main"](*tensors, *self._weights)
        except (IndexError, islands.IslandError) as error:  # what guards and islands raise
            islands.forget()
            raise InputError(str(error)) from error


class _HugePages:
    """Memory in huge pages, in which arrays lie one behind the other."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def weight(self, array: np.ndarray, shared: dict[bytes, Any] | None) -> Any:
        """A copy as a tensor, or that of the same content if there is one among those `shared`."""
        if shared is None:
            return self._copy(array)
        content = blake2b(f"{array.dtype}{array.shape}".encode())
        content.update(array.reshape(-1).view(np.uint8))
        if content.digest() not in shared:
            shared[content.digest()] = self._copy(array)
        return shared[content.digest()]

    def _copy(self, array: np.ndarray) -> Any:
        size_bytes = _lines(array.nbytes)
        if size_bytes > self._left.size:
            self._left = _reserved(max(size_bytes, _RESERVED_BYTES))
        place, self._left = self._left[: array.nbytes], self._left[size_bytes:]
        place[:] = array.reshape(-1).view(np.uint8)
        return _as_tensor(place, TensorType(dtype=str(array.dtype), shape=array.shape))


def _tensors(arrays: Sequence[np.ndarray]) -> list[Any]:
    return [tvm.runtime.tensor(np.asarray(array, order="C")) for array in arrays]


_LINE_BYTES = 64
_HUGE_BYTES, _RESERVED_BYTES = 2 << 20, 64 << 20


class WeightsPool:
    """Weights files that were read, so that networks which share one hold it in memory once."""

    def __init__(self) -> None:
        self._read: dict[Path, dict[str, Any]] = {}

    def load(self, path: Path) -> dict[str, Any]:
        """The constants of a network by name. Raises ValueError for a damaged file."""
        reference = reference_in(path)
        if reference is None:
            return read_tensors(path)
        source = (path.parent / reference.file).resolve()
        if source not in self._read:
            self._read[source] = read_tensors(source)
        return {own: self._read[source][name] for own, name in reference.names.items()}


def load_weights(path: Path) -> dict[str, Any]:
    """The constants of a network by name: those of its weights file, or of another file that its
    own one refers to. Raises ValueError for a file that is cut short or something else."""
    reference = reference_in(path)
    if reference is None:
        return read_tensors(path)
    found = read_tensors(path.parent / reference.file, {*reference.names.values()})
    return {own: found[name] for own, name in reference.names.items()}


def read_tensors(path: Path, wanted: Container[str] | None = None) -> dict[str, Any]:
    """The tensors of a weights file, by name, one after the other in one piece of memory; all of
    them, or those that are `wanted`.

    They lie in huge pages, for which TVM does not ask: with small ones a network of a hundred
    megabytes spends one to three hundredths of its time on looking up where they are. Each tensor
    is read to where it stays, so that none is ever in memory twice. Raises ValueError for a file
    that is cut short or something else.
    """
    with path.open("rb") as file:
        every = stored_tensors(file, path.stat().st_size)
        stored = [kind for kind in every if wanted is None or kind.name in wanted]
        places = [_lines(kind.bytes) for kind in stored]
        memory, at = _reserved(sum(places)), 0
        tensors: dict[str, Any] = {}
        for kind, place in zip(stored, places, strict=True):
            values = memory[at : at + kind.bytes]
            file.seek(kind.offset)
            if file.readinto(values.data) != kind.bytes:
                raise ValueError(f"{path.name} is cut short")
            tensors[kind.name] = _as_tensor(values, kind)
            at += place
    return tensors


def _lines(size_bytes: int) -> int:
    return -(-size_bytes // _LINE_BYTES) * _LINE_BYTES


def _as_tensor(values: np.ndarray, kind: StoredTensor | TensorType) -> Any:
    """The bytes as a tensor where they lie; types that numpy cannot hand over go as whole numbers
    of their size, and are called what they are there."""
    element = element_type(kind.dtype)
    own = element.library == "numpy"
    dtype = element.numpy if own else np.dtype(f"uint{8 * element.bytes}")
    found = tvm_ffi.from_dlpack(values.view(dtype).reshape(kind.shape))
    return found if own else found._create_view(kind.shape, dtype=element.name)


def held(kind: TensorType) -> tuple[np.ndarray, Any]:
    """Memory of zeros that lasts from call to call: as an array, and as the tensor in the same
    place. Not for element types that numpy cannot hand over."""
    values = _reserved(max(1, kind.bytes))
    array = values.view(element_type(kind.dtype).numpy).reshape(kind.shape)
    return array, _as_tensor(values, kind)


def _reserved(size_bytes: int) -> np.ndarray:
    """Untouched memory in huge pages, as far as it fills whole ones; the rest is small pages."""
    mapping = mmap.mmap(-1, size_bytes + _HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = np.frombuffer(mapping, np.uint8)
    begin = -memory.ctypes.data % _HUGE_BYTES
    whole = size_bytes // _HUGE_BYTES * _HUGE_BYTES
    if whole:
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE, begin, whole)
    return memory[begin : begin + size_bytes]

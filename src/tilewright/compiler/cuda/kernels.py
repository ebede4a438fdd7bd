"""Kernels on a GPU: run on given arrays, and timed by the GPU's own clock.

A launch takes microseconds of the CPU, more than many kernels do. So calls are put into a graph,
one after the other, each with the next copy of the weights: what is timed is the replay of a graph
between two events.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, cycle, islice
from math import ceil, inf
from time import perf_counter

import numpy as np

from tilewright.compiler.cuda.driver import Driver, Graph, Memory, Module
from tilewright.compiler.operands import ArrayType, bytes_of, physical_operands, random_array
from tilewright.core.element_types import element_type
from tilewright.core.records import Candidate, Protocol
from tilewright.core.timings import Burst
from tilewright.graph.arrays import to_logical
from tilewright.graph.inputs import argument_limit
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram

RESULT = "result"
_ALIGNMENT = 256
_LEAST_S = 1e-7
_LEAST_SAMPLE_S = 1e-3
"""A replay lasts at least that long: the clock of events ticks every half a microsecond."""
_WARM_UP_S, _STILL_WARM_UP_S = 50e-3, 10e-3
"""Clocks of an idle GPU need about that long; and of one that had work just before."""
_COLD_AFTER_S = 0.5
_MOST_GRAPH_S = 50e-3
_MOST_CALLS, _MOST_COPIES = 2_000, 256
_SLICE_S = 20e-3
_AGREED, _PATIENCE = 1.1, 3
"""As on the CPU: sampling goes on until the last samples agree within 10 %."""
_SHARE = 0.5
"""Of the memory that is free, for copies of weights."""

Watch = tuple[Callable[[], bool], Callable[[], None]]


def argument_name(index: int) -> str:
    """What a program calls an argument of its workload."""
    return f"argument{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """A compiled candidate; what `builders.base.Kernel` wants.

    `binary` is a cubin, `types` are those of the arguments and the result. The GPU is opened when
    it is first needed.
    """

    open_driver: Callable[[], Driver]
    program: CudaProgram
    binary: bytes
    types: tuple[ArrayType, ...]
    kernel_hash: str
    build_s: float
    workload: Workload
    candidate: Candidate

    def run(self, arrays: Sequence[Array]) -> Array:
        """The result on logical arrays, as a logical array."""
        driver = self.open_driver()
        with self._placed(driver, [], 1) as (places,):
            for index, array in enumerate(physical_operands(self.workload, self.candidate, arrays)):
                driver.upload(places[argument_name(index)], array)
            self._call(driver, driver.load(self.program.source, self.binary), places)
            shape, dtype = self.types[-1]
            result = np.empty(shape, element_type(dtype).numpy)
            driver.download(places[RESULT], result)
        return to_logical(result, self.candidate.forms[-1], self.workload.result.shape)

    def time(self, protocol: Protocol, seed: int, give_up_s: float) -> list[float]:
        """Seconds per call of each sample; constants rotate through copies.

        A kernel whose warm-up takes longer than `give_up_s` is sampled once and left at that.
        """
        with self._bench(protocol, seed) as bench:
            once_s = bench.once_s(protocol.warmup)
            if once_s > give_up_s:
                return [bench.once_s(1)]
            bench.prepare(once_s, protocol.sample_s)
            samples = [bench.sample_s() for _ in range(protocol.repeats)]
            most = _PATIENCE * protocol.repeats
            while len(samples) < most and not _steady(samples[-protocol.repeats :]):
                samples.append(bench.sample_s())
            return samples[-protocol.repeats :]

    def repeat(self, protocol: Protocol, seed: int, seconds: float) -> int:
        """Call it for at least so many seconds and once, constants rotating; returns how often.

        What a first call prepares is kept for the next, so that in a window of a meter there is
        nothing but calls.
        """
        wanted = (self.kernel_hash, protocol, seed)
        if _KEPT.wanted != wanted:
            _KEPT.close()
            bench = _KEPT.stack.enter_context(self._bench(protocol, seed))
            bench.prepare(bench.once_s(protocol.warmup), _SLICE_S)
            _KEPT.bench, _KEPT.wanted = bench, wanted
        assert _KEPT.bench is not None
        return _KEPT.bench.run_while(_for_seconds(seconds))

    def keep_running(self, protocol: Protocol, seed: int, watch: Watch) -> list[Burst]:
        """Call it as for timing while the first function of `watch` says so, and once; the second
        one is told when the first calls are done. What it did since."""
        goes_on, begun = watch
        with self._bench(protocol, seed) as bench:
            bench.prepare(bench.once_s(protocol.warmup), _SLICE_S)
            begun()
            began_s = perf_counter()
            calls, end_s = bench.run_while(goes_on), perf_counter()
            return [Burst(began_s, end_s, calls, end_s - began_s)]

    @contextmanager
    def _bench(self, protocol: Protocol, seed: int) -> Generator[Bench]:
        """The kernel with random operands on the GPU."""
        driver = self.open_driver()
        rotating = [
            index
            for index, argument in enumerate(self.workload.arguments)
            if protocol.activations == "cold" or argument.role == "constant"
        ]
        with self._placed(driver, rotating, self._copies(driver, protocol, rotating)) as sets:
            limit, rng = argument_limit(self.workload), np.random.default_rng(seed)
            for index, (shape, dtype) in enumerate(self.types[:-1]):
                array = random_array(rng, shape, dtype, limit)
                first, *others = dict.fromkeys(places[argument_name(index)] for places in sets)
                driver.upload(first, array)
                for memory in others:
                    driver.copy(memory, first)
            module = driver.load(self.program.source, self.binary)
            yield Bench(driver, [partial(self._call, driver, module, it) for it in sets])
            driver.synchronise()

    def _call(self, driver: Driver, module: Module, places: Mapping[str, Memory]) -> None:
        for launch in self.program.launches:
            driver.launch(module, launch, places)

    def _copies(self, driver: Driver, protocol: Protocol, rotating: Sequence[int]) -> int:
        """How many copies of what rotates add up to what the protocol wants, and fit."""
        size = sum(bytes_of(self.types[index]) for index in rotating)
        if not size:
            return 1
        room = int(_SHARE * driver.free_bytes()) // size
        return max(1, min(-(-protocol.rotation_bytes // size), room, _MOST_COPIES))

    @contextmanager
    def _placed(
        self, driver: Driver, rotating: Sequence[int], copies: int
    ) -> Generator[list[dict[str, Memory]]]:
        """Memory for all arrays by name, in so many sets that differ in what rotates."""
        _KEPT.close()
        names = [*map(argument_name, range(len(self.types) - 1)), RESULT]
        sizes = {name: bytes_of(kind) for name, kind in zip(names, self.types, strict=True)}
        for name, (count, dtype) in self.program.workspaces.items():
            sizes[name] = bytes_of(((count,), dtype))
        turned = {argument_name(index) for index in rotating}
        pieces = [(name, copy) for name in sizes for copy in range(copies if name in turned else 1)]
        steps = (-(-sizes[name] // _ALIGNMENT) * _ALIGNMENT for name, _ in pieces)
        *offsets, size = accumulate(steps, initial=0)
        at = dict(zip(pieces, offsets, strict=True))
        memory = driver.allocate(size)
        try:
            yield [
                {
                    name: memory.part(at[name, copy if name in turned else 0], sizes[name])
                    for name in sizes
                }
                for copy in range(copies)
            ]
        finally:
            driver.release(memory)


class Bench:
    """Calls of a kernel in turn, timed on the GPU."""

    def __init__(self, driver: Driver, calls: Sequence[Callable[[], None]]) -> None:
        self._driver = driver
        self._calls = calls
        self._ends = driver.event(), driver.event()
        self._graph: Graph = None
        self._in_graph = self._replays = 0

    @property
    def calls(self) -> int:
        """How many a sample makes."""
        return self._in_graph * self._replays

    def once_s(self, times: int) -> float:
        """Seconds of a call that is asked for alone, the fastest of some."""
        return max(_LEAST_S, min(self._timed_s(self._calls[0]) for _ in range(max(1, times))))

    def prepare(self, once_s: float, least_s: float) -> None:
        """Warm up, and make samples last at least so long."""
        wanted = max(len(self._calls), ceil(_LEAST_SAMPLE_S / once_s))
        self._in_graph = max(1, min(wanted, _MOST_CALLS, int(_MOST_GRAPH_S / once_s)))
        self._graph = self._driver.captured(self._call_all)
        self._replays = 1
        graph_s = max(_LEAST_S, self._timed_s(self._replay))
        warm = perf_counter() < _LAST_TIMED.at_s + _COLD_AFTER_S
        self._replays = ceil((_STILL_WARM_UP_S if warm else _WARM_UP_S) / graph_s)
        graph_s = max(_LEAST_S, self._timed_s(self._replay) / self._replays)
        self._replays = ceil(max(_LEAST_SAMPLE_S, least_s) / graph_s)

    def sample_s(self) -> float:
        """Seconds per call of one sample."""
        return self._timed_s(self._replay) / self.calls

    def run_while(self, goes_on: Callable[[], bool]) -> int:
        """Sample after sample, at least one; how many calls they were."""
        count = 0
        while goes_on() or not count:
            self.sample_s()
            count += self.calls
        return count

    def _call_all(self) -> None:
        for call in islice(cycle(self._calls), self._in_graph):
            call()

    def _replay(self) -> None:
        for _ in range(self._replays):
            self._driver.replay(self._graph)

    def _timed_s(self, work: Callable[[], None]) -> float:
        first, last = self._ends
        self._driver.record(first)
        work()
        self._driver.record(last)
        elapsed_s = self._driver.elapsed_s(first, last)
        _LAST_TIMED.at_s = perf_counter()
        return elapsed_s


def _for_seconds(seconds: float) -> Callable[[], bool]:
    end_s = perf_counter() + seconds
    return lambda: perf_counter() < end_s


class _LastTimed:
    """When a GPU of this process had something to do, by this process's clock."""

    def __init__(self) -> None:
        self.at_s = -inf


_LAST_TIMED = _LastTimed()


class _Kept:
    """What was prepared for the last kernel that ran in windows of a meter."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.wanted: tuple[str, Protocol, int] | None = None
        self.bench: Bench | None = None

    def close(self) -> None:
        """Give its memory back."""
        self.wanted = self.bench = None
        self.stack.close()


_KEPT = _Kept()


def _steady(samples: Sequence[float]) -> bool:
    return max(samples) <= _AGREED * min(samples)

"""Running a network on a GPU: loaded once, its launches replayed as one CUDA graph.

    loaded = LoadedCudaNetwork(read_network(path), weights, driver)
    outputs = loaded([image])

All that a run needs is allocated when the network is loaded, in one piece: constants, arena, memory
of inputs and outputs. A run copies inputs there, replays the graph, and copies outputs back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from types import MappingProxyType

import numpy as np

from tilewright.compiler.cuda.driver import Driver, Graph, Memory, OutOfDeviceMemory
from tilewright.compiler.cuda.network import LIBRARY, CudaNetwork, Place, read_network
from tilewright.core.element_types import element_type
from tilewright.core.errors import DamagedArtifact, InputError, TargetError
from tilewright.core.units import format_bytes
from tilewright.core.weights import WEIGHTS, StoredValues, values_by_name
from tilewright.graph.network import Array, TensorType

_WARM_S, _MOST_WARM = 0.05, 20_000
"""Replays before anything is timed: a GPU that had nothing to do has a lower clock."""
_BATCH_S = 0.02
"""How much work is asked for at once while a meter is read."""
_AHEAD = 1.5
_MOST_AHEAD = 200


class WeightsOnGpu:
    """Constants that lie on a GPU, so that networks which share a file hold them there once."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._held: dict[tuple[Path, int], Memory] = {}

    def of(self, values: Mapping[str, StoredValues]) -> dict[str, Memory]:
        """Where each constant lies; those that are not there yet are copied."""
        for stored in values.values():
            if stored.place not in self._held and stored.bytes.size:
                memory = _allocated(self._driver, stored.bytes.size)
                self._driver.upload(memory, stored.bytes)
                self._held[stored.place] = memory
        return {
            name: self._held[stored.place]
            for name, stored in values.items()
            if stored.place in self._held
        }


class LoadedCudaNetwork:
    """A network on a GPU: inputs in the model's order in, outputs in order out.

    `weights` are the bytes of the constants by name; those that are `held` lie on the GPU already.
    Raises TargetError for a GPU of another architecture, or with less memory left than the network
    needs.
    """

    def __init__(
        self,
        network: CudaNetwork,
        weights: Mapping[str, Array],
        driver: Driver,
        held: Mapping[str, Memory] = MappingProxyType({}),
    ) -> None:
        require_architecture(network.arch, driver.card.arch)
        self._network = network
        self._driver = driver
        self._modules = [driver.load(each.source, each.binary) for each in network.modules]
        there = {
            ("constant", number): held[constant.name]
            for number, constant in enumerate(network.constants)
            if constant.name in held
        }
        sizes = {key: size for key, size in network.sizes_bytes.items() if key not in there}
        self._whole = _allocated(driver, sum(sizes.values()))
        self._memory = {**there, **dict(_pieces(self._whole, sizes))}
        for constant in network.constants:
            if constant.place.bytes and constant.name not in held:
                driver.upload(self._at(constant.place), weights[constant.name])
        self._launches = [
            (
                self._modules[each.module],
                each.launch,
                {name: self._at(place) for name, place in each.arrays.items()},
            )
            for each in network.launches
        ]
        self._graph: Graph = driver.captured(self._launch_all)
        driver.synchronise()

    @classmethod
    def open(
        cls,
        folder: Path,
        order: Sequence[str],
        driver: Driver,
        pool: WeightsOnGpu | None = None,
    ) -> LoadedCudaNetwork:
        """Load what `compile` wrote; `order` are the names of its constants. Networks that share
        their weights hold them on the GPU once when they have one `pool`.

        Raises ModelError where the network takes others, or a file is damaged.
        """
        network = read_network(folder / LIBRARY)
        if [constant.name for constant in network.constants] != list(order):
            raise DamagedArtifact(folder, f"{LIBRARY} does not take the constants of the manifest")
        try:
            weights = values_by_name(folder / WEIGHTS)
        except (OSError, ValueError) as error:
            raise DamagedArtifact(folder, str(error)) from error
        for constant in network.constants:
            stored = weights.get(constant.name)
            if stored is None or stored.bytes.size != constant.type.bytes:
                raise DamagedArtifact(folder, f"its weights lack {constant.name}, or differ")
        own = {name: stored.bytes for name, stored in weights.items()}
        return cls(network, own, driver, pool.of(weights) if pool else {})

    def close(self) -> None:
        """Give the memory back; the network cannot be run any more."""
        self._driver.synchronise()
        self._driver.release(self._whole)
        self._modules.clear()
        self._launches.clear()

    @property
    def input_count(self) -> int:
        """How many arrays a run takes."""
        return len(self._network.inputs)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once. Raises InputError for inputs of another number, shape or type, and where an
        index is out of range."""
        self._upload(inputs)
        self._driver.replay(self._graph)
        outputs = [self._downloaded(it.place, it.type) for it in self._network.outputs]
        self.check()
        return outputs

    def try_out(self) -> None:
        """Run once on zeros: a GPU that does not work shows that now, and no later run waits for
        what the first one of a process takes."""
        kinds = [port.type for port in self._network.inputs]
        self([np.zeros(kind.shape, element_type(kind.dtype).numpy) for kind in kinds])

    def give(self, number: int, array: Array | Memory) -> None:
        """Bring an input to where runs read it, and wait until it is there. What lies on the GPU
        already is copied there, and nobody waits. Raises InputError for another shape or type."""
        if isinstance(array, Memory):
            self._driver.copy(self.input(number), array)
            return
        self._upload_one(number, array)
        self._driver.synchronise()

    def compute(self) -> None:
        """Run once on what was given, and wait until it is computed."""
        self._driver.replay(self._graph)
        self._driver.synchronise()

    def fetch(self, number: int, goal: Array) -> None:
        """Copy an output of the last run into an array of its shape and type."""
        if goal.nbytes:
            self._driver.download(self.result(number), goal)

    def input(self, number: int) -> Memory:
        """Where runs read an input."""
        return self._at(self._network.inputs[number].place)

    def result(self, number: int) -> Memory:
        """Where an output lies until the next run."""
        return self._at(self._network.outputs[number].place)

    def check(self) -> None:
        """Raise InputError where an index was out of range in the last run."""
        for check in self._network.checks:
            if self._downloaded(check.place, _WORD)[0]:
                raise InputError(check.message)

    def time(self, inputs: Sequence[Array], repeats: int, warmup: int) -> list[float]:
        """Seconds of each replay of the graph by events, after `warmup` of them and at least 50 ms;
        inputs and outputs are not copied."""
        self._upload(inputs)
        self._warm(warmup)
        return self._timed(repeats)

    def repeat(self, inputs: Sequence[Array], seconds: float) -> int:
        """Run again and again, for at least so many seconds and once; returns how often."""
        self._upload(inputs)
        (once_s,) = self._timed(1)
        batch = max(1, int(_BATCH_S / max(once_s, 1e-6)))
        count, end = 0, perf_counter() + seconds
        while count == 0 or perf_counter() < end:
            for _ in range(batch):
                self._driver.replay(self._graph)
            self._driver.synchronise()
            count += batch
        return count

    def time_calls(self, inputs: Sequence[Array], repeats: int) -> list[tuple[str, float]]:
        """Symbol and median seconds of every call in its place in the network, in order, by events
        around each of them.

        The launches are asked for while the GPU still is busy with the whole graph, so that no call
        waits for this process. What the event costs is in each time.
        """
        self._upload(inputs)
        once_s = self._warm(1)
        ahead, runs = 1, list[list[float]]()
        for _ in range(repeats + 1):
            began_s = perf_counter()
            runs.append(self._call_times(ahead))
            asked_s = perf_counter() - began_s
            ahead = max(1, min(_MOST_AHEAD, int(_AHEAD * asked_s / max(once_s, 1e-6))))
        medians = [median(samples) for samples in zip(*runs[1:], strict=True)]
        symbols = [symbol for _, symbol in self._network.calls]
        return list(zip(symbols, medians, strict=True))

    def _call_times(self, ahead: int) -> list[float]:
        """Seconds of each call, behind so many replays."""
        driver = self._driver
        events = [driver.event() for _ in range(len(self._network.calls) + 1)]
        for _ in range(ahead):
            driver.replay(self._graph)
        driver.record(events[0])
        done = 0
        for each, launch in zip(self._network.launches, self._launches, strict=True):
            while done < each.call:
                done += 1
                driver.record(events[done])
            driver.launch(*launch)
        for event in events[done + 1 :]:
            driver.record(event)
        return [
            driver.elapsed_s(one, next_one)
            for one, next_one in zip(events, events[1:], strict=False)
        ]

    def _warm(self, least: int) -> float:
        """Replay the graph some times; the seconds that once takes."""
        (once_s,) = self._timed(1)
        for _ in range(max(least, min(_MOST_WARM, int(_WARM_S / max(once_s, 1e-6))))):
            self._driver.replay(self._graph)
        return once_s

    def _timed(self, repeats: int) -> list[float]:
        events = [self._driver.event() for _ in range(repeats + 1)]
        self._driver.record(events[0])
        for event in events[1:]:
            self._driver.replay(self._graph)
            self._driver.record(event)
        pairs = zip(events, events[1:], strict=False)
        return [self._driver.elapsed_s(one, next_one) for one, next_one in pairs]

    def _launch_all(self) -> None:
        for launch in self._launches:
            self._driver.launch(*launch)

    def _at(self, place: Place) -> Memory:
        memory = self._memory[place.memory, place.number]
        return memory.part(place.offset_bytes, place.bytes)

    def _upload(self, inputs: Sequence[Array]) -> None:
        ports = self._network.inputs
        if len(inputs) != len(ports):
            raise InputError(f"{len(inputs)} arrays given for {len(ports)} inputs")
        for number, given in enumerate(inputs):
            self._upload_one(number, given)

    def _upload_one(self, number: int, given: Array) -> None:
        port, array = self._network.inputs[number], np.asarray(given, order="C")
        if (array.shape, str(array.dtype)) != (port.type.shape, port.type.dtype):
            raise InputError(
                f"input {port.name!r} is {array.dtype}{list(array.shape)}, the network was "
                f"compiled for {port.type}"
            )
        if array.nbytes:
            self._driver.upload(self._at(port.place), array)

    def _downloaded(self, place: Place, kind: TensorType) -> Array:
        array = np.empty(kind.shape, element_type(kind.dtype).numpy)
        if array.nbytes:
            self._driver.download(self._at(place), array)
        return array


_WORD = TensorType((1,), "int32")


def require_architecture(compiled: str, here: str) -> None:
    """Raise TargetError where cubins are for another architecture than that of a GPU. Some would
    run on a newer one, where other settings are the best."""
    if compiled.rstrip("a") != here.rstrip("a"):
        raise TargetError(
            f"the network was compiled for {compiled}, the GPU here is {here}",
            hint="Run `tilewright optimize` with --target cuda here.",
        )


def _allocated(driver: Driver, size: int) -> Memory:
    """Memory for a network. Raises TargetError where there is not enough."""
    try:
        return driver.allocate(size)
    except OutOfDeviceMemory as error:
        raise TargetError(
            f"the network needs {format_bytes(size)} of the GPU's memory, of which "
            f"{format_bytes(driver.free_bytes())} are free",
            hint="Smaller inputs (--batch, --shape), or end what else uses the GPU "
            "(`nvidia-smi` lists it).",
        ) from error


def _pieces(
    whole: Memory, sizes: Mapping[tuple[str, int], int]
) -> Iterator[tuple[tuple[str, int], Memory]]:
    """The pieces of a network's memory by kind and number, one behind the other."""
    at = 0
    for key, size in sizes.items():
        yield key, whole.part(at, size)
        at += size

"""What engines have in common that work in a stream of NVIDIA's driver, on memory from there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tilewright.compiler.cuda import nvidia
from tilewright.compiler.cuda.driver import Driver, Stream
from tilewright.core.element_types import element_type
from tilewright.core.errors import TargetError
from tilewright.graph.inputs import random_inputs
from tilewright.hardware.cards import card_target
from tilewright.measure.peers.engine import Arrays, Engine, time_calls
from tilewright.models.loading import load

_TRIALS, _WARMUP = 10, 3


@dataclass(slots=True)
class Way:
    """One way to compute a network: what `call` asks for reads and writes the engine's memory."""

    mode: str
    call: Callable[[], Any]


def open_gpu() -> Driver:
    """The first GPU that this process sees. Raises TargetError where there is none."""
    cards = nvidia.find_cards()
    if not cards:
        raise TargetError(nvidia.NO_GPU)
    return nvidia.open_driver(card_target(cards[0]))


class StreamEngine(Engine):
    """An engine whose calls are work in a stream. Inputs and outputs lie in memory of the GPU, by
    name: `memory`, of the `types`; `output_names` are those of the outputs."""

    driver: Driver
    stream: Stream

    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Try all ways and keep the fastest; returns the precision."""
        loaded = load(model_path)
        graph = loaded.graph
        self.driver = open_gpu()
        self.stream = self.driver.stream()
        self.clock = self
        self.output_names = list(loaded.outputs)
        outputs = zip(loaded.outputs, graph.outputs, strict=True)
        self.input_names = list(graph.inputs)
        self.types = {name: graph.types[name] for name in graph.inputs}
        self.types |= {name: graph.types[tensor] for name, tensor in outputs}
        self.memory = {n: self.driver.allocate(kind.bytes) for n, kind in self.types.items()}
        self.bind(random_inputs(graph, 0))
        ways = self.ways(model_path, precision)
        self._way = ways[0] if len(ways) == 1 else min(ways, key=self._median_s)
        self.mode = self._way.mode
        return self.precision(precision)

    @abstractmethod
    def ways(self, model_path: str, precision: str) -> Sequence[Way]:
        """Those that work, at least one, each of which has run; without tf32 where `precision` is
        fp32. Raises what the engine says where none works."""

    def precision(self, asked: str) -> str:
        """What float32 is computed in: the engines use tf32 where they may and the GPU can."""
        return "tf32" if asked != "fp32" and self.driver.card.capability >= (8, 0) else "fp32"

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        for name in self.input_names:
            kind, given = self.types[name], np.asarray(inputs[name], order="C")
            if (given.shape, str(given.dtype)) != (kind.shape, kind.dtype):
                raise ValueError(f"input {name} is {given.dtype}{list(given.shape)}, not {kind}")
            self.driver.upload(self.memory[name], given)
        self.driver.synchronise()
        return lambda: self._way.call()

    def outputs(self, result: Any) -> Arrays:
        self.driver.synchronise()
        found = {n: np.empty(self.types[n].shape, self.numpy(n)) for n in self.output_names}
        for name, array in found.items():
            self.driver.download(self.memory[name], array)
        return found

    def numpy(self, name: str) -> Any:
        """The element type of an input or output."""
        return element_type(self.types[name].dtype).numpy

    def event(self) -> Any:
        """An event of the driver."""
        return self.driver.event()

    def record(self, event: Any) -> None:
        """In the stream, behind all that was asked for."""
        self.driver.record(event, self.stream)

    def elapsed_s(self, first: Any, second: Any) -> float:
        """By the driver."""
        return self.driver.elapsed_s(first, second)

    def _median_s(self, way: Way) -> float:
        return median(time_calls(way.call, _TRIALS, _WARMUP, self))

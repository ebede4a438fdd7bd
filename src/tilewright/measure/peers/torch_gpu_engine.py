"""The child process in which eager torch runs our graph of a model on a GPU: cuDNN and cuBLAS in
their best mode.

Weights and inputs lie on the GPU. Networks of images are tried with their channels in the second
place and in the last one; launches are captured as a CUDA graph and replayed, where nothing in the
network waits for the GPU. The fastest way is taken and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tilewright.graph.inputs import random_inputs
from tilewright.kernels.cuda.base import CUDA
from tilewright.measure.peers.engine import Arrays, time_calls
from tilewright.measure.peers.torch_engine import Place, TorchEngine, TorchGraph
from tilewright.measure.peers.torch_operators import torch
from tilewright.models.loading import load

_OF_IMAGES = frozenset({"conv2d", "conv2d_transpose", "max_pool2d", "avg_pool2d"})
_TRIALS, _WARMUP = 10, 3
_OLDEST_WITH_TF32 = (8, 0)


class NoGpu(Exception):
    """Torch cannot compute on a GPU here; the message says why."""


class TorchEvents:
    """Events of the stream in which torch works."""

    def event(self) -> Any:
        """An event that knows its time."""
        return torch.cuda.Event(enable_timing=True)

    def record(self, event: Any) -> None:
        """Behind all that was asked for."""
        event.record()

    def elapsed_s(self, first: Any, second: Any) -> float:
        """Torch counts milliseconds."""
        second.synchronize()
        return first.elapsed_time(second) * 1e-3


@dataclass(slots=True)
class Way:
    """One way to compute a network: `call` reads `inputs`, which stay where they are."""

    mode: str
    inputs: Mapping[str, Any]
    call: Callable[[], tuple[Any, ...]]


class TorchGpuEngine(TorchEngine):
    """One graph on the first GPU that is visible."""

    @torch.inference_mode()
    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Try all ways and keep the fastest. Without tf32 where fp32 is asked for, else as torch
        does by itself. Raises `NoGpu`."""
        require_gpu()
        torch.set_num_threads(threads)
        self.clock = TorchEvents()
        torch.backends.cudnn.benchmark = True
        self._graph = load(model_path).graph
        used = _precision(precision)
        given = random_inputs(self._graph, 0)
        ways = [self._tried(layout, place, given) for layout, place in self.layouts()]
        self._way = ways[0] if len(ways) == 1 else min(ways, key=self._median_s)
        self.mode = self._way.mode
        return used

    def layouts(self) -> list[tuple[str, Place]]:
        """How tensors may lie on the GPU, by what people call it."""
        if any(node.operator in _OF_IMAGES for node in self._graph.nodes):
            return [("channels first", on_gpu), ("channels last", _channels_last)]
        return [("", on_gpu)]

    def called(self, place: Place) -> Callable[..., Any]:
        """A function from the graph's inputs to its outputs, both in its order, on the GPU."""
        return TorchGraph(self._graph, place).run

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        for name in self._graph.inputs:
            given, there = inputs[name], self._way.inputs[name]
            if given.shape != tuple(there.shape):
                raise ValueError(f"input {name} is {given.shape}, not {tuple(there.shape)}")
            there.copy_(torch.from_numpy(np.array(given)))
        return self._way.call

    def _tried(self, layout: str, place: Place, given: Arrays) -> Way:
        inputs = {n: place(torch.from_numpy(np.array(given[n]))) for n in self._graph.inputs}
        call = partial(self.called(place), *inputs.values())
        replay = captured(call)
        graph = "no CUDA graph" if replay is None else "CUDA graph"
        return Way(", ".join(filter(None, (layout, graph))), inputs, replay or call)

    def _median_s(self, way: Way) -> float:
        return median(time_calls(way.call, _TRIALS, _WARMUP, self.clock))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    """A call's launches at a time; without the `call` its weights' memory would be used anew."""

    call: Callable[[], tuple[Any, ...]]
    graph: Any
    result: tuple[Any, ...]

    def __call__(self) -> tuple[Any, ...]:
        self.graph.replay()
        return self.result


def require_gpu() -> None:
    """Raise `NoGpu` where torch was built for CPUs, or sees no GPU."""
    if torch.version.cuda is None:
        raise NoGpu(f"PyTorch {torch.__version__} is built without CUDA")
    if not torch.cuda.is_available():
        raise NoGpu(f"PyTorch {torch.__version__} finds no GPU that it can use")


def on_gpu(tensor: Any) -> Any:
    """A copy on the GPU."""
    return tensor.to(CUDA)


def captured(call: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]] | None:
    """The launches of a call as a CUDA graph, after cuDNN has chosen its algorithms; None where
    they cannot be captured, because something in between waits for the GPU. The graph reads the
    call's weights where they lie, so it holds on to the call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARMUP):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            result = call()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return None

    return _Replay(call=call, graph=graph, result=result)


def _precision(asked: str) -> str:
    """Forbid tf32 where fp32 is asked for; what is computed in then."""
    libraries = (torch.backends.cudnn, torch.backends.cuda.matmul)
    if asked == "fp32":
        for library in libraries:
            library.allow_tf32 = False
    able = torch.cuda.get_device_capability() >= _OLDEST_WITH_TF32
    return "tf32" if able and any(library.allow_tf32 for library in libraries) else "fp32"


def _channels_last(tensor: Any) -> Any:
    there = on_gpu(tensor)
    return there.to(memory_format=torch.channels_last) if there.dim() == 4 else there


if __name__ == "__main__":
    TorchGpuEngine().serve()

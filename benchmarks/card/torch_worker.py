"""The child process that times workloads in eager PyTorch: cuDNN and cuBLAS in their best mode.

Calls are put into a graph and timed as our kernels are, by the same code, so that what launches
cost the CPU counts for nobody. It computes in float32 without tf32; the whole once more with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

import numpy as np

from tilewright.compiler.cuda.driver import Driver
from tilewright.compiler.cuda.kernels import Bench
from tilewright.compiler.operands import random_array
from tilewright.core.child import serve
from tilewright.core.records import Protocol
from tilewright.graph.inputs import argument_limit
from tilewright.graph.workload import Workload, parse_workload

# `core.child` hides torch from processes that import TVM, which would load it for nothing
sys.meta_path[:] = [it for it in sys.meta_path if type(it).__name__ != "_LessOfTvm"]

import torch  # noqa: E402

from tilewright.measure.peers.torch_operators import torch_call  # noqa: E402

_MOST_COPIES = 256
_SEED = 0


class TorchDriver:
    """The part of `Driver` that times, by PyTorch."""

    def event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)

    def record(self, event: Any, stream: Any = None) -> None:
        event.record()

    def elapsed_s(self, first: Any, second: Any) -> float:
        second.synchronize()
        return first.elapsed_time(second) * 1e-3

    def captured(self, work: Callable[[], None]) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph

    def replay(self, graph: Any) -> None:
        graph.replay()


def computed(workload: Workload, *, anchor: bool = False) -> Callable[..., Any]:
    """A function of torch tensors, one per argument: the whole workload step by step, or its
    anchor alone on made-up inputs. Raises NotImplementedError for what torch has no call for."""
    calls = [torch_call(step.operator, dict(step.attributes)) for step in workload.steps]
    if anchor:
        assert workload.anchor_index is not None
        return calls[workload.anchor_index]

    def whole(*arguments: Any) -> Any:
        values = list(arguments)
        for step, call in zip(workload.steps, calls, strict=True):
            values.append(call(*(values[place] for place in step.inputs)))
        return values[-1]

    return whole


def time(workload_text: str, protocol: Protocol) -> dict[str, Any]:
    """Seconds of each sample of the whole workload, without tf32 and where it may be used, and of
    its anchor alone where it has one."""
    torch.backends.cudnn.benchmark = True
    _allow_tf32(False)
    workload = parse_workload(workload_text)
    places = range(len(workload.arguments))
    found = {"samples_s": _samples(workload, computed(workload), places, protocol)}
    index = workload.anchor_index
    if index is not None:
        inputs = workload.steps[index].inputs
        call = computed(workload, anchor=True)
        found["anchor_s"] = _samples(workload, call, inputs, protocol)
        _allow_tf32(True)
        found["tf32_s"] = _samples(workload, computed(workload), places, protocol)
    return found | {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def _samples(
    workload: Workload, call: Callable[..., Any], places: Sequence[int], protocol: Protocol
) -> list[float]:
    """Constants rotate through copies, all else stays."""
    kinds: Sequence[Any] = workload.types
    roles = {index: argument.role for index, argument in enumerate(workload.arguments)}
    rotating = [place for place in places if roles.get(place) == "constant"]
    size = sum(kinds[place].bytes for place in rotating)
    copies = min(-(-protocol.rotation_bytes // size), _MOST_COPIES) if size else 1
    fixed = {place: _tensor(workload, place) for place in places if place not in rotating}
    sets: list[Mapping[int, Any]] = [
        fixed | {place: _tensor(workload, place) for place in rotating} for _ in range(copies)
    ]
    calls = [partial(call, *(those[place] for place in places)) for those in sets]
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        bench = Bench(cast("Driver", TorchDriver()), calls)
        bench.prepare(bench.once_s(max(3, protocol.warmup)), protocol.sample_s)
        return [bench.sample_s() for _ in range(protocol.repeats)]


_SEEDS = count(_SEED)


def _tensor(workload: Workload, place: int) -> Any:
    kind = workload.types[place]
    rng = np.random.default_rng(next(_SEEDS) % 7)
    array = random_array(rng, kind.shape, kind.dtype, argument_limit(workload))
    return torch.from_numpy(array).cuda()


if __name__ == "__main__":
    serve({"time": time})

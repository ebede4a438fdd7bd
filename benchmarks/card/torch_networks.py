"""The child process that times prepared networks in PyTorch on the GPU: eager operators one by one
(`eager`), the same in a CUDA graph (`graph`), and PyTorch's compiler with its own CUDA graphs
(`compiled`).

cuDNN chooses its fastest algorithms. It computes in float32, without tf32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tilewright.core.child import serve

# `core.child` hides torch from processes that import TVM, which would load it for nothing
sys.meta_path[:] = [it for it in sys.meta_path if type(it).__name__ != "_LessOfTvm"]

import torch  # noqa: E402

from networks_on_a_card import Prepared  # noqa: E402
from tilewright.measure.peers.torch_compiled_engine import TorchModule  # noqa: E402
from tilewright.measure.peers.torch_engine import as_it_is  # noqa: E402

_WARM_S = 0.05
_CALLS_BEFORE = 5


def time(folder: Path, way: str, repeats: int) -> dict[str, Any]:
    """Seconds of each call by events, and the outputs."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    prepared = Prepared(folder)
    module = TorchModule(prepared.graph, as_it_is).eval().cuda()
    arrays = prepared.inputs
    given = [torch.from_numpy(arrays[name]).cuda() for name in prepared.graph.inputs]
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        call = _WAYS[way](module, given)
        for _ in range(_CALLS_BEFORE):
            outputs = call()
        samples_s = _samples(call, repeats)
        torch.cuda.synchronize()
    return {
        "outputs": [output.cpu().numpy() for output in outputs],
        "latency_s": median(samples_s),
        "samples_s": samples_s,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "card": torch.cuda.get_device_name(),
    }


def _eager(module: Any, given: list[Any]) -> Callable[[], Any]:
    return lambda: module(*given)


def _in_a_graph(module: Any, given: list[Any]) -> Callable[[], Any]:
    for _ in range(_CALLS_BEFORE):  # cuDNN tries its algorithms before the capture
        module(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = module(*given)

    def replayed() -> Any:
        graph.replay()
        return outputs

    return replayed


def _compiled(module: Any, given: list[Any]) -> Callable[[], Any]:
    compiled: Any = torch.compile(module, mode="reduce-overhead")

    def called() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*given)

    return called


_WAYS = {"eager": _eager, "graph": _in_a_graph, "compiled": _compiled}


def _samples(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of calls one after the other, behind at least 50 ms of others."""
    once_s = _once(call, 1)[0]
    for _ in range(int(_WARM_S / max(once_s, 1e-6))):
        call()
    return _once(call, repeats)


def _once(call: Callable[[], Any], repeats: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    pairs = zip(events, events[1:], strict=False)
    return [one.elapsed_time(next_one) * 1e-3 for one, next_one in pairs]


if __name__ == "__main__":
    serve({"time": time})

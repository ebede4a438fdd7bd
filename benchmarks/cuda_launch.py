"""CUDA kernels that `cuda_facts.py` compiled, run on a GPU; needs CuPy, PyTorch and nvidia-ml-py.

    python benchmarks/cuda_launch.py FOLDER --out FILE

Each kernel is launched as its facts say, checked against PyTorch in double precision, and timed in
turn with PyTorch's fp32 (five rounds of CUDA graphs, with CUDA events). The driver's values are
stored with the times: registers, local memory, blocks per multiprocessor; and the power by NVML
while the kernel repeats. With `--once`, for a run under `ncu`, each kernel is launched once and
nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import pynvml
import torch

_ROUNDS, _GRAPH_MS, _MOST_CALLS = 5, 10.0, 1000
_POWER_S = 1.5

Item = dict[str, Any]


class Kernel:
    """The functions of one operator, with arguments on the GPU."""

    def __init__(self, item: Item, folder: Path) -> None:
        module = cupy.RawModule(path=str(folder / item["binary"]))
        rng = np.random.default_rng(0)
        self.arrays = {
            name: cupy.asarray(rng.standard_normal(shape, dtype=np.float32))
            for name, shape in item["arguments"].items()
        }
        self.result = cupy.zeros(item["result"], dtype=cupy.float32)
        known = {**self.arrays, "result": self.result}
        self.launches = [
            (
                module.get_function(function["name"]),
                tuple(function["grid"]),
                tuple(function["block"]),
                tuple(known[name] for name in function["parameters"]),
            )
            for function in item["functions"]
        ]

    def __call__(self) -> None:
        for function, grid, block, arguments in self.launches:
            function(grid, block, arguments)

    def driver(self) -> list[Item]:
        """What the driver says of each function."""
        return [
            {
                "registers": function.attributes["num_regs"],
                "local_bytes": function.attributes["local_size_bytes"],
                "shared_bytes": function.attributes["shared_size_bytes"],
                "blocks": cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    function.kernel.ptr, int(np.prod(block)), 0
                ),
            }
            for function, _, block, _ in self.launches
        ]


def reference(item: Item, arrays: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """PyTorch's answer to the same operator, with the peer's fp32 and not its TF32."""
    tensors = [torch.from_dlpack(arrays[name]) for name in item["arguments"]]
    kind, given = item["reference"], item["parameters"]
    if kind == "conv2d":
        return lambda: torch.conv2d(
            *tensors,
            padding=given.get("pad", 0),
            stride=given.get("stride", 1),
            groups=given.get("groups", 1),
        )
    if kind in ("dense", "batch_matmul"):
        return lambda: torch.matmul(*tensors)
    functions: dict[str, Callable[[], torch.Tensor]] = {
        "relu": lambda: torch.relu(*tensors),
        "softmax": lambda: torch.softmax(*tensors, dim=-1),
    }
    return functions[kind]


class Repeated:
    """Many calls of something, recorded as one CUDA graph, so that launching costs next to
    nothing."""

    def __init__(self, work: Callable[[], Any], stream: torch.cuda.Stream) -> None:
        for _ in range(3):
            work()
        self.calls = 1
        self._graph = self._recorded(work, stream)
        self.calls = max(1, min(_MOST_CALLS, round(_GRAPH_MS / max(self.milliseconds(), 1e-4))))
        self._graph = self._recorded(work, stream)

    def _recorded(self, work: Callable[[], Any], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(self.calls):
                work()
        return graph

    def replay(self) -> None:
        """All calls once."""
        self._graph.replay()

    def milliseconds(self) -> float:
        """Of one call, from two replays after one to warm up."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.replay()
        begin.record()
        for _ in range(2):
            self.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / (2 * self.calls)


def watts(repeated: Repeated) -> Item:
    """The board's power while a kernel repeats, by the energy counter."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    count, began, began_mj = 0, time.monotonic(), _millijoules(handle)
    while time.monotonic() < began + _POWER_S:
        repeated.replay()
        torch.cuda.synchronize()
        count += repeated.calls
    seconds, joules = time.monotonic() - began, (_millijoules(handle) - began_mj) / 1e3
    return {"power_w": joules / seconds, "energy_j": joules / count}


def _millijoules(handle: Any) -> int:
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)


def exact(item: Item, arrays: Mapping[str, Any]) -> torch.Tensor:
    """The operator's result in double precision."""
    doubled = {name: array.astype(cupy.float64) for name, array in arrays.items()}
    return reference(item, doubled)()


def measured(item: Item, folder: Path, stream: torch.cuda.Stream) -> Item:
    """Check and time one operator."""
    kernel = Kernel(item, folder)
    peer = reference(item, kernel.arrays)
    kernel()
    expected = exact(item, kernel.arrays)
    ours = torch.from_dlpack(kernel.result).reshape(expected.shape)
    error = float((ours - expected).abs().max() / expected.abs().max())
    found: Item = {"name": item["name"], "error": error, "driver": kernel.driver()}
    both = Repeated(kernel, stream), Repeated(peer, stream)
    rounds = [[repeated.milliseconds() for repeated in both] for _ in range(_ROUNDS)]
    found["ms"], found["peer_ms"] = (list(times) for times in zip(*rounds, strict=True))
    return {**found, **watts(both[0])}


def main() -> None:
    """Measure all operators of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    items: Sequence[Item] = json.loads((arguments.folder / "kernels.json").read_text())
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
        if arguments.once:
            for item in items:
                Kernel(item, arguments.folder)()
            torch.cuda.synchronize()
            return
        pynvml.nvmlInit()
        results = [measured(item, arguments.folder, stream) for item in items]
    properties = torch.cuda.get_device_properties(0)
    arguments.out.write_text(json.dumps({"device": properties.name, "results": results}, indent=1))


if __name__ == "__main__":
    main()

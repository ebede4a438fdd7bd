"""CUDA kernels that `cuda_facts.py` built, run on a GPU; wants CuPy, PyTorch, nvidia-ml-py.

    python benchmarks/cuda_launch.py FOLDER --out FILE

Each kernel is launched as its facts say, checked against PyTorch, and timed in turn with it (five
rounds, with CUDA events). What the driver says of the kernel is read beside it: registers, local
memory, blocks per multiprocessor; power by NVML while the kernel repeats. With `--once`, for a
run under `ncu`, each kernel is launched once and nothing else.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import cupy
import numpy as np
import torch

_ROUNDS, _LEAST_MS = 5, 20.0
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


def milliseconds(work: Callable[[], Any]) -> float:
    """Of one call, from as many as 20 ms hold, after as many to warm up."""

    def timed(calls: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    work()
    calls = max(1, round(_LEAST_MS / max(timed(3) / 3, 1e-4)))
    timed(calls)
    return timed(calls) / calls


def watts(work: Callable[[], Any], once_ms: float) -> Item:
    """The board's power while the kernel repeats, by the energy counter."""
    import time

    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    calls, end, count = max(1, round(10 / once_ms)), time.monotonic() + _POWER_S, 0
    began, began_mj = time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    while time.monotonic() < end:
        for _ in range(calls):
            work()
        torch.cuda.synchronize()
        count += calls
    seconds = time.monotonic() - began
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - began_mj) / 1e3
    return {"power_w": joules / seconds, "energy_j": joules / count}


def measured(item: Item, folder: Path) -> Item:
    """Check and time one operator."""
    kernel = Kernel(item, folder)
    peer = reference(item, kernel.arrays)
    kernel()
    expected = peer()
    ours = torch.from_dlpack(kernel.result).reshape(expected.shape)
    error = float((ours - expected).abs().max() / expected.abs().max())
    found: Item = {"name": item["name"], "error": error, "driver": kernel.driver()}
    rounds = [(milliseconds(kernel), milliseconds(peer)) for _ in range(_ROUNDS)]
    found["ms"], found["peer_ms"] = (list(times) for times in zip(*rounds, strict=True))
    return {**found, **watts(kernel, median(found["ms"]))}


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
        import pynvml

        pynvml.nvmlInit()
        results = [measured(item, arguments.folder) for item in items]
    properties = torch.cuda.get_device_properties(0)
    arguments.out.write_text(json.dumps({"device": properties.name, "results": results}, indent=1))


if __name__ == "__main__":
    main()

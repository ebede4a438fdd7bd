"""The energy meter of an NVIDIA GPU, read while the GPU works; wants nvidia-ml-py and PyTorch.

    python benchmarks/gpu_meter.py [--out FILE]

Matrix products of several sizes and precisions run in a loop under `measure_energy`, once by the
GPU's energy counter and once by its power, polled, as on GPUs without a counter. Both must agree
within what they resolve, and three windows with each other within 2 %.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages import table
from tilewright.hardware.meters import measure_energy, measure_idle, nvml_meter
from tilewright.hardware.meters.base import Meter, Reading

SIZES = ((1024, "float32"), (8192, "float16"))
HEADER = (
    "product", "by", "energy, J", "windows apart", "power, W", "idle, W", "TFLOP/s", "GFLOP/J",
)  # fmt: skip


def products(size: int, dtype: str) -> Callable[[float], int]:
    """Matrix products one after the other for so many seconds; how many."""
    import torch

    left, right = (
        torch.randn(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2)
    )
    out = torch.empty_like(left)

    def work(seconds: float) -> int:
        calls, began_s = 0, time.monotonic()
        while time.monotonic() - began_s < seconds:
            for _ in range(20):
                torch.mm(left, right, out=out)
            torch.cuda.synchronize()
            calls += 20
        return calls

    return work


class _WithoutCounter:
    """nvidia-ml-py of a GPU that has no energy counter."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: object) -> int:
        raise self._library.NVMLError(self._library.NVML_ERROR_NOT_SUPPORTED)


def measured(
    label: str, meter: Meter, idle: Reading, work: Callable[[float], int], flop: float
) -> dict[str, Any]:
    """One product by one meter."""
    use = measure_energy(meter, work, idle=idle)
    spread = (max(use.samples_j) - min(use.samples_j)) / use.energy_j if use.energy_j else None
    return {
        "product": label,
        "method": use.method,
        "energy_j": use.energy_j,
        "samples_j": use.samples_j,
        "spread": spread,
        "power_w": use.power_w,
        "idle_w": use.idle_power_w,
        "flop": flop,
        "reason": use.reason,
    }


def row(item: dict[str, Any]) -> tuple[str, ...]:
    """One reading in the table."""
    flop_per_s = item["flop"] * item["power_w"] / item["energy_j"]
    return (
        item["product"], item["method"], f"{item['energy_j']:.4g}", f"{item['spread']:.1%}",
        f"{item['power_w']:.0f}", f"{item['idle_w']:.0f}", f"{flop_per_s / 1e12:.1f}",
        f"{item['flop'] / item['energy_j'] / 1e9:.0f}",
    )  # fmt: skip


def main() -> None:
    """Read, print the table, keep what was read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    import pynvml

    meters = {"counter": nvml_meter(), "polled": nvml_meter(library=_WithoutCounter(pynvml))}
    for meter in meters.values():
        lost = meter.unavailable()
        if lost is not None:
            raise SystemExit(f"No GPU is read here: {lost.reason}")
    idle = {name: measure_idle(meter) for name, meter in meters.items()}
    items: list[dict[str, Any]] = []
    for size, dtype in SIZES:
        work = products(size, dtype)
        work(1.0)
        for name, meter in meters.items():
            label = f"{size}×{size}, {dtype}"
            items.append(measured(label, meter, idle[name], work, 2.0 * size**3))
    if out is not None:
        out.write_text(json.dumps(items, indent=1))
    print(table(HEADER, map(row, items)))


if __name__ == "__main__":
    main()

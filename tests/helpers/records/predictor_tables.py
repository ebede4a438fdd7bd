"""Small synthetic tables whose structure is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars

SHEETS = [
    {
        "device": f"gpu{number}",
        "memory_bandwidth_gb_s": 200 * (number + 1),
        "peak_fp32_gflop_s": 5000 * (number + 1),
        "multiprocessors": 20 * (number + 1),
        "l2_cache_mb": 4,
        "clock_mhz": 1400,  # earlier versions wanted it; it is not read
    }
    for number in range(3)
]


def write_sheets(path: Path) -> Path:
    """Datasheets of gpu0, gpu1 and gpu2."""
    path.write_text(json.dumps(SHEETS))
    return path


def softmax_table(rows: int = 120, devices: int = 3, noise: float = 0.02) -> polars.DataFrame:
    """Times that are an overhead of 30 µs and 60 % of the bandwidth."""
    random = np.random.default_rng(5)
    parts: list[polars.DataFrame] = []
    for sheet in SHEETS[:devices]:
        b = random.integers(100, 16000, rows)
        h = random.integers(32, 4096, rows)
        bytes_per_s = 0.6e9 * float(sheet["memory_bandwidth_gb_s"])  # pyright: ignore
        time_s = 30e-6 + 8.0 * b * h / bytes_per_s
        time_s *= np.exp(noise * random.standard_normal(rows))
        parts.append(
            polars.DataFrame(
                {"device": [sheet["device"]] * rows, "b": b, "h": h, "latency_ms": time_s * 1e3}
            )
        )
    return polars.concat(parts)


def power_table(pairs: int = 40, noise: float = 0.01) -> polars.DataFrame:
    """Power that rises with the logarithm of the work up to 700 W."""
    random = np.random.default_rng(6)
    shapes = random.integers(6, 16, (pairs, 2))
    rows = [
        {
            "device": "gpu",
            "gemm_dtype": "bfloat16",
            "m": 2**m,
            "n": int(2**n),
            "k": int(2**k),
            "power_w": float(
                min(700.0, 100 + 15.0 * (m + n + k)) * np.exp(noise * random.standard_normal())
            ),
        }
        for n, k in shapes
        for m in range(0, 14, 2)
    ]
    return polars.DataFrame(rows)


def knob_table(devices: int = 3) -> polars.DataFrame:
    """A product of effects of knobs, scaled by the device; some settings fail."""
    rows = [
        {
            "device": f"gpu{device}",
            "block_size_x": x,
            "block_size_y": y,
            "tile_size_x": tx,
            "tile_size_y": ty,
            "read_only": ro,
            "use_padding": 0,
            "use_shmem": sh,
            "filter_height": 15,
            "filter_width": 15,
            "time_ms": None
            if x * y * tx * ty > 6000
            else (device + 1)
            * (1 + abs(np.log2(x * y) - 7) * 0.3)
            * (1.5 - 0.2 * tx)
            * (1.4 - 0.1 * ty * sh)
            * (1.1 - 0.05 * ro),
        }
        for device in range(devices)
        for x in (16, 32, 64, 128, 256)
        for y in (1, 2, 4, 8)
        for tx in (1, 2, 4)
        for ty in (1, 2, 4)
        for ro in (0, 1)
        for sh in (0, 1)
    ]
    return polars.DataFrame(rows)

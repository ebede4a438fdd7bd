"""Dense layers of few rows with their weights in float32, in 16 bits and on codes of eight bits.

    python benchmarks/streamed_weights.py [--threads N] [--rows 1,2,4,8] [--tried N]

Of each implementation the settings with the least estimates are timed, all kernels of a layer in
turn, with weights that come from beyond the inner caches; the fastest counts. Prints microseconds,
and gigabytes of weights per second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilewright.core.forms import PLAIN, Form, stored_in
from tilewright.core.records import Candidate, Measurement, Placement, Precision, Protocol
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.dense_int8_weights import CODED
from tilewright.kernels.spaces import spaces
from tilewright.measure.targeting import open_measurer
from tilewright.testing.implementations import single

LAYERS = {
    "vgg19 fc6": (25088, 4096),
    "vgg19 fc7": (4096, 4096),
    "vgg19 fc8": (4096, 1000),
    "GPT-2 qkv": (768, 2304),
    "GPT-2 mlp up": (768, 3072),
    "GPT-2 mlp down": (3072, 768),
    "GPT-2 logits": (768, 50257),
}
"""Depth and columns."""
KINDS: dict[str, tuple[Precision, str | None, Form, float]] = {
    "float32": ("float32", None, PLAIN, 4.0),
    "bfloat16": ("bfloat16", "bfloat16", PLAIN, 2.0),
    "float16": ("float16", "float16", PLAIN, 2.0),
    "int8 weights": ("float32", None, CODED, 1.0),
}
"""By name: precision, how the data is stored, the form of the weights, bytes of a weight."""


def tried(task: Workload, kind: str, on: Placement, count: int) -> Iterator[Candidate]:
    """Of each implementation the settings with the least estimates."""
    precision, stored, weights, _ = KINDS[kind]
    data = stored_in(PLAIN, stored)
    for space in spaces(task, (data, weights, data), replace(on, precision=precision)):
        for row in np.argsort(space.estimates_s, kind="stable")[:count]:
            yield space.part.candidate(int(space.numbers[row]))


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", default="1,2,4,8")
    parser.add_argument("--tried", type=int, default=3)
    parser.add_argument("--layers", default="", help="parts of names")
    asked = parser.parse_args()
    on = local_placement(asked.threads)
    protocol = Protocol(repeats=3, sample_s=0.01, rotation_bytes=512 << 20)
    with open_measurer(on, 0) as measurer:
        for name, (depth, columns) in LAYERS.items():
            if not any(part in name for part in asked.layers.split(",")):
                continue
            for rows in map(int, asked.rows.split(",")):
                task = single("dense", (rows, depth), (depth, columns), constants=(1,))
                every = {kind: [*tried(task, kind, on, asked.tried)] for kind in KINDS}
                flat = [each for found in every.values() for each in found]
                outcomes = iter(measurer.measure(task, flat, protocol))
                told = [f"{name:15} {rows:2} rows"]
                for kind, found in every.items():
                    timed = [next(outcomes) for _ in found]
                    good = [each for each in timed if isinstance(each, Measurement)]
                    best = min(good, key=lambda each: each.latency_s, default=None)
                    if best is None:
                        told.append(f"{kind}: {timed[0]}")
                        continue
                    rate = KINDS[kind][3] * depth * columns / best.latency_s / 1e9
                    how = best.candidate
                    told.append(
                        f"{kind} {1e6 * best.latency_s:.0f} µs {rate:.1f} GB/s "
                        f"({how.implementation} {dict(how.settings)})"
                    )
                print("\n    ".join(told), flush=True)


if __name__ == "__main__":
    main()

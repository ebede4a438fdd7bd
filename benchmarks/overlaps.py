"""What could be gained by choosing which parts of two networks run beside each other?

    python benchmarks/overlaps.py --scale 36.9e9

Each network runs on one core of its own, again and again, as two instances that serve requests do.
A network streams at one rate in a convolution and at another in a dense layer. Left alone, every
part of one meets every part of the other: its slowdown is 1 + (mean rate × mean rate of the other)
÷ scale². No choice of what meets what does better than the parts that stream most beside those that
stream least (the rearrangement inequality), even if waiting for each other cost nothing.
"""

from __future__ import annotations

import argparse
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

import tilewright
from tilewright.cost.contention import slowdown

NETWORKS = (
    "squeezenet1_1", "mobilenet_v2", "resnet18", "googlenet", "resnet50", "vgg19_bn", "bert_base",
)  # fmt: skip
_STEPS = 10_000


def rates(network: str) -> npt.NDArray[np.float64]:
    """Bytes per second that a network streams on one core, at equal steps of its time, the least
    first."""
    with tilewright.open(db="memory:", threads=1) as session:
        calls = session.planning_data(f"zoo:{network}", ["llvm"]).calls
    modes = [call.modes[0] for call in calls if call.modes[0].latency_s]
    each = sorted((mode.moved_bytes / mode.latency_s, mode.latency_s) for mode in modes)
    ends = np.cumsum([seconds for _, seconds in each])
    steps = (np.arange(_STEPS) + 0.5) / _STEPS * ends[-1]
    return np.array([rate for rate, _ in each])[np.searchsorted(ends, steps)]


def main() -> None:
    """Print a table of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=36.9e9, help="bytes per second")
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    given = parser.parse_args()
    known = {name: rates(name) for name in given.networks}
    print("| networks | GB/s in the mean | by chance | best choice | gain at most |")
    print("| --- | --- | ---: | ---: | ---: |")
    for one, other in combinations_with_replacement(known, 2):
        first, second = known[one], known[other]
        chance = float(np.mean(first)) * float(np.mean(second))
        best = float(np.mean(first * second[::-1]))
        by_chance = float(slowdown(chance, 1.0, given.scale))
        chosen = float(slowdown(best, 1.0, given.scale))
        mean = ", ".join(f"{np.mean(each) / 1e9:.1f}" for each in (first, second))
        print(f"| {one}, {other} | {mean} | {by_chance:.3f} | {chosen:.3f} | ", end="")
        print(f"{by_chance / chosen:.3f} |", flush=True)


if __name__ == "__main__":
    main()

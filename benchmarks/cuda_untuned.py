"""TVM's own schedules for GPUs (dlight) beside ours, along the padding and the height of the
convolution of a cliff that was reported to us.

    python benchmarks/cuda_untuned.py [--models T4,A100,H100] [--page]

What TVM's kernel is like is counted in its lowered code; the model of waves turns that into a time,
in which neither shared memory nor waiting is counted, so that it is a lower bound. Ours are the
times by which settings are chosen, as in `cuda_bars.py smooth`. The table goes to
docs/benchmarks-cuda-kernels.md where `--page` is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from cuda_bars import PADDING, PAGE, UNTUNED
from cuda_smooth import largest_step, modelled
from pages import replace_between, table
from tilewright.core.events import discard
from tilewright.cost import blocks
from tilewright.cost.demand import Blocks
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CompilerReport, CudaKernel
from tilewright.insight.cuda_explaining import CudaExplainer, cuda_explainer
from tilewright.insight.cuda_facts import main_kernel, with_report
from tilewright.measure.cuda_inspector import CudaInspector
from tilewright.models import ModelOptions

WARP, SECTOR_BYTES = 32, 32


@dataclass(frozen=True)
class Untuned:
    """TVM's kernel at one size: its rule, its modelled time, also for an operation, and what a
    thread of it does."""

    rule: str
    total_s: float
    seconds: float
    kernel: CudaKernel


def demanded(kernel: CudaKernel, workload: Workload) -> Blocks:
    """What the code of a kernel asks of a GPU, as far as it was counted: a multiplication with an
    addition, a load, a store and a comparison are an instruction each."""
    threads, warps = kernel.blocks * kernel.threads, ceil(kernel.threads / WARP)
    counted = kernel.loads + kernel.stores + kernel.comparisons
    stored_bytes = workload.result.bytes / kernel.blocks
    return Blocks(
        count=kernel.blocks,
        threads=kernel.threads,
        registers=kernel.report.registers if kernel.report is not None else 0,
        shared_bytes=kernel.shared_bytes,
        operations=workload.flop / kernel.blocks,
        instructions=warps * (counted + workload.flop / 2 / threads),
        traffic_bytes=warps * kernel.loads * kernel.sectors * SECTOR_BYTES + stored_bytes,
        steps=0.0,
        memory_bytes=workload.bytes,
    )


def untuned(texts: Sequence[str], explainer: CudaExplainer) -> list[Untuned]:
    """TVM's kernels along a sweep. Registers are those of the first one."""
    target, found = explainer.placement.target, list[Untuned]()
    report: CompilerReport | None = None
    with CudaInspector(explainer.placement) as inspector:
        for text in texts:
            workload, candidate = explainer.kernel(text)
            code = inspector.code(workload, candidate, compiled=report is None)
            kernel = main_kernel(code)
            report = report or kernel.report
            kernel = with_report(kernel, report)
            seconds = float(blocks.seconds(demanded(kernel, workload), target))
            found.append(Untuned(code.rule, seconds, seconds / workload.flop, kernel))
    return found


def span(values: Iterable[float], digits: int = 1) -> str:
    """The least and the largest value, one number where they are the same."""
    found = sorted({f"{value:.{digits}f}" for value in values}, key=float)
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def rows(model: str) -> Iterable[list[str]]:
    """The rows of a GPU."""
    explainer = cuda_explainer(f"cuda -model={model}", None, discard, ModelOptions(), UNTUNED)
    for kernel in (3, 7):
        sweeps = {
            "padding 0 to 3": [PADDING.format(h=225, k=kernel, pad=p) for p in range(4)],
            "height 200 to 260": [PADDING.format(h=h, k=kernel, pad=0) for h in range(200, 261)],
        }
        for name, texts in sweeps.items():
            theirs = untuned(texts, explainer)
            ours = [modelled(text, explainer.placement) for text in texts]
            yield [
                *(
                    model,
                    f"{kernel}×{kernel}",
                    name,
                    ", ".join(sorted({t.rule for t in theirs})),
                ),
                span(each.kernel.comparisons / each.kernel.loads for each in theirs),
                span(each.kernel.sectors for each in theirs),
                span(1e6 * each.total_s for each in theirs),
                f"{largest_step([each.seconds for each in theirs]):.3f}",
                span(1e6 * point.total_s for point in ours),
                f"{largest_step([point.seconds for point in ours]):.3f}",
            ]


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default="T4,A100,H100")
    parser.add_argument("--page", action="store_true", help="write the table to the page")
    args = parser.parse_args(argv)
    text = table(
        [
            *("GPU", "kernel", "along", "TVM's rule", "its comparisons per load"),
            *("its sectors per load", "its time at least, µs", "its largest step"),
            *("our modelled time, µs", "our largest step"),
        ],
        [row for model in args.models.split(",") for row in rows(model)],
    )
    print(text)
    if args.page:
        replace_between(PAGE, ("<!-- untuned: begin -->", "<!-- untuned: end -->"), text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Facts that `explain --target cuda` computes of kernels, compared with measurements on a GPU.

    python benchmarks/cuda_facts.py --build FOLDER          # needs nvcc, no GPU
    python benchmarks/cuda_launch.py FOLDER --out FILE      # on the GPU
    ncu --csv -k regex:main_kernel --metrics COUNTERS python benchmarks/cuda_launch.py FOLDER
        --once > COUNTED                                    # on the GPU
    python benchmarks/cuda_facts.py --build FOLDER --measured FILE --counted COUNTED

The first command compiles operators in TVM's default GPU schedules for an H100; `cuda_launch.py`
runs them. The last command writes the tables of docs/benchmarks-cuda.md: how often facts equal the
driver's values, predicted sectors against those that the GPU's counter
`l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum` (sectors of global loads) counts, and the time,
power and facts of every operator.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pages import replace_between, table
from tilewright.core.events import discard
from tilewright.cost.floors import Work
from tilewright.hardware.gpus import CompilerReport, CudaKernel, Gpu
from tilewright.hardware.target import parse_gpu
from tilewright.insight.cuda_explaining import CudaExplainer
from tilewright.insight.cuda_facts import kernel_facts, roofline_of_gpu_s
from tilewright.measure.cuda_inspector import CudaInspector
from tilewright.models import ModelOptions
from tilewright.predict.base import rank_correlation

TARGET = "cuda -model=H100"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks-cuda.md"
PADDED = (
    "c=64,h=56,k=3,out=64", "c=128,h=28,k=3,out=128", "c=256,h=14,k=3,out=256",
    "c=512,h=7,k=3,out=512", "c=32,h=112,k=3,out=32", "c=64,h=56,k=1,out=256",
    "c=3,h=224,k=7,out=64,stride=2", "c=64,h=56,k=5,out=64",
)  # fmt: skip
BATCHES = (8, 10, 11, 12, 13, 14, 16, 20, 22, 23, 24, 25, 26, 28)
OTHERS = (
    "op:dense[m=128,k=768,n=768]", "op:dense[m=1,k=2048,n=1000]", "op:dense[m=2,k=2048,n=1000]",
    "op:dense[m=16,k=2048,n=1000]", "op:dense[m=512,k=1024,n=4096]",
    "op:batch_matmul[b=12,m=128,k=64,n=128]", "op:softmax[shape=1536x128]",
    "op:relu[shape=1x64x56x56]", "op:relu[shape=1x512x112x112]",
)  # fmt: skip

Item = dict[str, Any]


def operators() -> Iterator[str]:
    """The texts of all operators."""
    for given in PADDED:
        yield from (f"op:conv2d[{given},pad={pad}]" for pad in range(3))
    yield from (f"op:conv2d[n={count},c=64,h=56,k=3,out=64,pad=1]" for count in BATCHES)
    yield from OTHERS


def build(folder: Path) -> None:
    """Compile all operators; what the GPU's side needs goes to `kernels.json` and cubins."""
    gpu = parse_gpu(TARGET)
    explainer = CudaExplainer(gpu=gpu, events=discard, options=ModelOptions())
    folder.mkdir(parents=True, exist_ok=True)
    items: list[Item] = []
    with CudaInspector(gpu) as inspector:
        for number, name in enumerate(dict.fromkeys(operators())):
            workload = explainer.workload(name)
            code = inspector.code(workload)
            if code.reason:
                raise SystemExit(f"{name}: {code.reason}")
            binary = f"{number}.cubin"
            (folder / binary).write_bytes(code.binary)
            arguments = {
                f"argument{index}": list(argument.type.shape)
                for index, argument in enumerate(workload.arguments)
            }
            items.append(
                {
                    "name": name,
                    "reference": name[3 : name.index("[")],
                    "parameters": {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)\b", name)},
                    "binary": binary,
                    "arguments": arguments,
                    "result": list(workload.types[-1].shape),
                    "functions": [asdict(kernel) for kernel in code.kernels],
                    "rule": code.rule,
                    "flop": workload.flop,
                    "bytes": workload.bytes,
                }
            )
    (folder / "kernels.json").write_text(json.dumps(items, indent=1))


def kernels(item: Mapping[str, Any]) -> list[CudaKernel]:
    """The functions of an operator, from JSON."""
    found: list[CudaKernel] = []
    for function in item["functions"]:
        sizes = {key: tuple(function[key]) for key in ("grid", "block", "parameters")}
        report = CompilerReport(**function["report"])
        found.append(CudaKernel(**{**function, **sizes, "report": report}))
    return found


def agreement(items: Sequence[Item], results: Mapping[str, Item]) -> str:
    """In how many kernels facts equal the driver's values."""
    gpu = parse_gpu(TARGET)
    rows: list[tuple[str, str]] = []
    for fact, said in (
        ("registers", "registers"),
        ("shared_bytes", "shared_bytes"),
        ("blocks_per_multiprocessor", "blocks"),
    ):
        pairs = [
            (kernel_facts(kernel, gpu)[fact], driver[said])
            for item in items
            for kernel, driver in zip(kernels(item), results[item["name"]]["driver"], strict=True)
        ]
        rows.append((f"`{fact}`", f"{sum(a == b for a, b in pairs)} of {len(pairs)}"))
    return table(("fact", "kernels in which the driver gives the same value"), rows)


def counted_sectors(path: Path) -> list[float]:
    """Sectors of global loads of each function, in the order in which ncu saw them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    return [
        float(line["Metric Value"].replace(",", ""))
        for line in csv.DictReader(lines[start:])
        if line["Metric Name"] == _SECTORS
    ]


def sectors_table(items: Sequence[Item], counted: Sequence[float]) -> str:
    """Sectors by `sector_bytes` divided by counted ones, for each schedule rule."""
    gpu = parse_gpu(TARGET)
    found: dict[str, list[float]] = {}
    flat = [(item, kernel) for item in items for kernel in kernels(item)]
    for (item, kernel), sectors in zip(flat, counted, strict=True):
        stated = kernel_facts(kernel, gpu)["sector_bytes"]
        assert isinstance(stated, float)
        found.setdefault(item["rule"], []).append(stated / 32 / sectors)
    rows = [
        (rule, str(len(ratios)), f"{median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}")
        for rule, ratios in found.items()
    ]
    header = ("schedule rule", "kernels", "predicted ÷ counted sectors, median", "range")
    return table(header, rows)


def roof_of(item: Item, gpu: Gpu) -> float | None:
    """The roofline's time of one operator, every operand moved once."""
    return roofline_of_gpu_s(Work(flop=item["flop"], memory_bytes=item["bytes"]), gpu)


def row(item: Item, result: Item, shown: Sequence[str]) -> tuple[str, ...]:
    """One operator: time, power, peer, facts."""
    gpu = parse_gpu(TARGET)
    main = max(kernels(item), key=lambda kernel: kernel.blocks * kernel.threads * kernel.loads)
    facts = kernel_facts(main, gpu)
    ms, peer_ms = median(result["ms"]), median(result["peer_ms"])
    roof_s = roof_of(item, gpu)
    return (
        f"`{item['name'][3:]}`",
        item["rule"],
        f"{1e3 * ms:.1f} ({1e3 * min(result['ms']):.1f} to {1e3 * max(result['ms']):.1f})",
        f"{1e3 * peer_ms:.1f}",
        f"{1e6 * (roof_s or 0):.1f}",
        f"{result['power_w']:.0f}",
        *(_shown(facts[fact]) for fact in shown),
    )


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else f"{value:.0f}"


def write_page(folder: Path, measured: Path, counted: Path) -> None:
    """Replace the tables of the page."""
    items: list[Item] = json.loads((folder / "kernels.json").read_text())
    found: Item = json.loads(measured.read_text())
    results = {result["name"]: result for result in found["results"]}
    shown = (
        "grid_blocks", "most_blocks", "waves", "tail", "occupancy", "registers", "guarded_share",
        "comparisons", "loads", "sectors_per_load",
    )  # fmt: skip
    header = (
        "operator", "schedule rule", "time, µs (range of rounds)", "PyTorch's time, µs",
        "roofline time, µs", "power, W", *(f"`{fact}`" for fact in shown),
    )  # fmt: skip
    rows = [row(item, results[item["name"]], shown) for item in items]
    gpu = parse_gpu(TARGET)
    times = [median(results[item["name"]]["ms"]) for item in items]
    correlations = [
        (label, f"{rank_correlation(np.array(values), np.array(times)):.3f}")
        for label, values in (
            ("roofline time", [roof_of(item, gpu) or 0.0 for item in items]),
            (
                "loads and stores of a thread × waves, rounded up",
                [work(item, "waves") for item in items],
            ),
            (
                "loads and stores of a thread × `most_blocks`",
                [work(item, "most_blocks") for item in items],
            ),
        )
    ]
    worst = max(result["error"] for result in results.values())
    text = "\n\n".join(
        (
            f"GPU: {found['device']}. Over {len(items)} operators, results differ from PyTorch's "
            f"by at most {worst:.1e} of the largest value.",
            agreement(items, results),
            sectors_table(items, counted_sectors(counted)),
            table(("quantity", "rank correlation with the times"), correlations),
            table(header, rows),
        )
    )
    replace_between(PAGE, ("<!-- facts: begin -->", "<!-- facts: end -->"), text)


def work(item: Item, fact: str) -> float:
    """Loads and stores of a thread times a fact of its function, rounded up, summed up."""
    gpu = parse_gpu(TARGET)
    total = 0.0
    for kernel in kernels(item):
        times = kernel_facts(kernel, gpu)[fact]
        assert isinstance(times, (int, float))
        total += (kernel.loads + kernel.stores) * ceil(times)
    return total


def main() -> None:
    """Compile the kernels, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="by cuda_launch.py")
    parser.add_argument("--counted", type=Path, metavar="FILE", help="by ncu")
    arguments = parser.parse_args()
    if (arguments.measured is None) != (arguments.counted is None):
        parser.error("--measured and --counted go together")
    if arguments.measured is None:
        build(arguments.build)
    else:
        write_page(arguments.build, arguments.measured, arguments.counted)


if __name__ == "__main__":
    main()

"""Networks tuned by the graph tuner (layouts and algorithms together), compared with the peers.

    python benchmarks/graph_tuner.py [--networks NAME…] [--budget B] [--results FOLDER]

Each network is tuned from an empty database, which times its assignments in turn; the network that
ships is then timed in turn with the peers. Results are stored network by network; the same command
continues where it stopped. The tables are written to docs/benchmarks-graph.md. No other program may
run meanwhile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import onnx

from kept import Item, kept, once
from measured_command import run_tilewright
from pages import replace_between, table

HERE = Path(__file__).parent
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
GROUPS = {
    "The five convolutional networks": (
        "resnet50", "vgg19_bn", "inception_v3", "densenet201", "ssd_resnet50_512",
    ),
    "Networks to which the graph tuner was not adapted": (
        "squeezenet1_1", "googlenet", "mobilenet_v2", *sorted(p.stem for p in LIGHT.glob("*.onnx")),
    ),
    "Transformers": ("bert_base", "vit_b16"),
}  # fmt: skip
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
HEADER = (
    "network", "budget", "ONNX Runtime", "OpenVINO", "torch", "default", "tuned", "uniform",
    "history best", "chosen", "reconsidered", "shipped", "speed-up over the fastest peer",
    "gain over history best, measured", "gain over history best, predicted", "beyond the sum",
    "beyond the corrected sum", "gap", "solver's time, s", "candidates", "changes of layout",
)  # fmt: skip
PEERS = "onnxruntime,openvino,torch_compiled"


def model_of(name: str) -> str:
    """Our zoo's networks, and those that come with the onnx package."""
    return str(LIGHT / f"{name}.onnx") if name.startswith("light_") else f"zoo:{name}"


def run_network(name: str, budget: str, folder: Path) -> Item:
    """Tune with the graph tuner, then compare the artifact with the peers."""
    for path in folder.glob("tuning.db*"):
        path.unlink()
    database, out = str(folder / "tuning.db"), str(folder / "out")
    tuned = run_tilewright(
        ["tune", model_of(name), "--level", "graph", "--budget", budget]
        + ["--db", database, "--out", out],
        log=folder / "log.txt",
    )
    compared = run_tilewright(
        ["compare", out, "--peers", PEERS, "--db", database], log=folder / "compare.txt"
    )
    data = tuned.answer["data"]
    kept = (
        "latency_s baseline_latency_s reference_latency_s max_rel_error measurements failures "
        "elapsed_s solver objective_s bound_s gap solve_s operators candidates transforms "
        "assignments seconds_by_phase"
    )
    return {
        "network": name,
        "budget": budget,
        "peers": compared.answer["data"]["rows"],
        "warnings": tuned.answer["warnings"],
        **{field: data[field] for field in kept.split()},
    }


def table_rows(items: Sequence[Item]) -> list[list[str]]:
    """One row per network: times in milliseconds, then ratios."""
    rows: list[list[str]] = []
    for item in items:
        raced = {row["name"]: row for row in item["assignments"]}
        peers = {
            row["peer"]: row["peer_latency_s"]
            for row in item["peers"]
            if row["precision"] == "fp32"
        }
        rows.append(
            [
                item["network"],
                item["budget"],
                *(_ms(peers.get(name)) for name in ("onnxruntime", "openvino", "torch compiled")),
                *(_ms(raced[n]["measured_s"]) for n in ("default", "tuned", "uniform")),
                *(_ms(raced[n]["measured_s"]) for n in ("history_best", "chosen")),
                _ms(raced.get("reconsidered", {}).get("measured_s")),
                _ms(item["latency_s"]),
                f"{fastest_ratio(item):.2f}",
                _gain(raced, "measured_s"),
                _gain(raced, "predicted_s"),
                _beyond(raced["chosen"], "predicted_s"),
                _beyond(raced["chosen"], "corrected_s"),
                f"{item['gap']:.0%}",
                f"{item['solve_s']:.2f}",
                str(item["candidates"]),
                str(item["transforms"]),
            ]
        )
    return rows


def fastest_ratio(item: Item) -> float:
    """The speed-up of the shipped network over the fastest fp32 peer, in the later comparison."""
    return min(row["speedup"] for row in item["peers"] if row["precision"] == "fp32")


def _gain(raced: Mapping[str, Item], field: str) -> str:
    """History best over the chosen assignment."""
    other, chosen = raced["history_best"][field], raced["chosen"][field]
    return f"{other / chosen:.3f}" if other and chosen else "–"


def _beyond(row: Item, field: str) -> str:
    """How much longer the chosen network takes than a sum of its kernels' times."""
    total, measured = row.get(field), row["measured_s"]
    return f"{measured / total - 1:+.1%}" if total and measured else "–"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.2f}"


def write_table(results: Path, page: Path) -> None:
    """Put a table per group of networks between the marks of the page."""
    parts: list[str] = []
    for title, names in GROUPS.items():
        items = kept(results / name / "result.json" for name in names)
        if items:
            mean = geometric_mean(fastest_ratio(item) for item in items)
            said = f"The geometric mean of the speed-ups over the fastest fp32 peer is {mean:.3f}."
            parts += [f"### {title}", table(HEADER, table_rows(items)), said]
    replace_between(page, (BEGIN, END), "\n\n".join(parts))


def main() -> int:
    """Run what is missing, then write the table."""
    networks = [name for names in GROUPS.values() for name in names]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=networks)
    parser.add_argument("--budget", default="15m")
    parser.add_argument("--results", type=Path, default=HERE / "results/graph")
    arguments = parser.parse_args()
    for name in arguments.networks:
        print(name, flush=True)
        folder = arguments.results / name
        once(folder / "result.json", partial(run_network, name, arguments.budget, folder))
    write_table(arguments.results, HERE.parent / "docs/benchmarks-graph.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())

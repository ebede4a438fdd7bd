"""What a short budget is spent on where a network has about a hundred tasks.

    python benchmarks/short_budgets.py [--budget 100s] [--networks swin segformer]

Each network is exported first, then optimized from an empty database. Of the whole command's time
at least 60 % must go into building and timing candidates (second looks at finalists are shown
apart), and at most 5 % of the network's time, by times in place, may lie in tasks that were never
measured alone. Prints a row per network; ends with 1 where one of the bars is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

import tilewright
from measured_command import run_tilewright
from tilewright.plan.preparation import prepare

NETWORKS = ("swin", "segformer")
SEARCHED_LEAST, UNMEASURED_MOST = 0.6, 0.05
_HEADER = (
    "| network | tasks | seconds | building and timing | second looks | compiling | checking "
    "| racing | measurements | never measured | of default | of ONNX Runtime |"
)


def exported(name: str, folder: Path) -> Path:
    """The network as an ONNX file."""
    with chdir(Path(__file__).parent), tilewright.open() as session:
        network = prepare(f"torch:many_tasks:{name}", tilewright.ModelOptions(), session.placement)
    path = folder / f"{name}.onnx"
    onnx.save(onnx.load(network.model.onnx_path), path)
    return path


def never_measured(data: Mapping[str, Any]) -> float:
    """Part of the time in place that lies in tasks without a time alone."""
    times = [(task["count"] * task["in_place_s"], task["latency_s"]) for task in data["tasks"]]
    return sum(s for s, alone in times if alone is None) / sum(s for s, _ in times)


def row(name: str, data: Mapping[str, Any]) -> tuple[str, bool]:
    """A row of the table, and whether both bars are met."""
    seconds, total_s = data["seconds_by_phase"], data["elapsed_s"]
    parts = {phase: seconds.get(phase, 0.0) / total_s for phase in seconds}
    searched, left = parts["build"] + parts["run"], never_measured(data)
    default, latency = data["baseline_latency_s"], data["latency_s"]
    cells = (
        name, len(data["tasks"]), f"{total_s:.0f}", f"{searched:.0%}",
        *(f"{parts.get(p, 0.0):.0%}" for p in ("finalists", "compile", "verify", "compare")),
        data["measurements"], f"{left:.1%}", f"{default / latency:.2f}",
        f"{data['reference_latency_s'] / latency:.2f}",
    )  # fmt: skip
    text = "| " + " | ".join(map(str, cells)) + " |"
    return text, searched >= SEARCHED_LEAST and left <= UNMEASURED_MOST


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="100s")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    asked = parser.parse_args(words)
    print(f"{_HEADER}\n{'| --- ' * _HEADER.count(' | ')}| --- |")
    met = True
    for name in asked.networks:
        with TemporaryDirectory(prefix="short-budgets-") as folder:
            place = Path(folder)
            model = str(exported(name, place))
            command = ("optimize", model, "--budget", asked.budget, "--out", str(place / "out"))
            answer = run_tilewright((*command, "--db", str(place / "db")), log=place / "log").answer
            text, holds = row(name, answer["data"])
            print(text, flush=True)
            met = met and holds
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

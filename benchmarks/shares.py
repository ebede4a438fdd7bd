"""Whether reports say where the time goes after budgets too short to measure all tasks.

    python benchmarks/shares.py [--budgets 0 60s] [--networks NAME…]

Each network of the zoo is optimized with each budget, from an empty database. The shares must add
up to 1 ± 0.02 in the answer, in the manifest, in the report's table and in its chart, and the five
largest tasks by time in place must come first in table and chart. Prints a row per network and
budget; ends with 1 where one fails. Ten networks with a minute each take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measured_command import CommandFailed, run_tilewright

NETWORKS = (
    "mlp", "squeezenet1_1", "mobilenet_v2", "resnet18", "resnet18_int8", "resnet50", "googlenet",
    "densenet201", "nasnet_mobile", "bert_base",
)  # fmt: skip
BUDGETS = ("0", "60s")
LEADING, OFF = 5, 0.02
_CHART = re.compile(
    r'aria-label="Share of the time of each task">\s*<script type="application/json">(.*?)</script>'
)
_ROW = re.compile(r'<tr>\s*<td>((?:[^<]|<wbr>)*)</td>\s*<td class="num" data-value="([\d.e-]+)">')

Shares = list[tuple[str, float]]


def charted(page: str) -> Shares:
    """Names and shares of the chart's bars."""
    found = _CHART.search(page)
    bars = json.loads(found[1])["datasets"]["bars"] if found else []
    return [(bar["name"], bar["share"]) for bar in bars]


def tabled(page: str) -> Shares:
    """Names and shares of the rows of the table of tasks."""
    table = page[page.index("<h2>Tasks</h2>") :]
    rows = _ROW.findall(table[: table.index("</table>")])
    return [(unescape(name.replace("<wbr>", "")), float(share)) for name, share in rows]


def faults(data: Mapping[str, Any], manifest: Mapping[str, Any], page: str) -> list[str]:
    """What does not hold of an answer, its manifest and its report; empty where all does."""
    found: list[str] = []
    for where, result in (("answer", data), ("manifest", manifest["result"])):
        total = sum(task["share"] or 0.0 for task in result["tasks"]) + result["rest_share"]
        if abs(total - 1) > OFF:
            found.append(f"{where}: shares add up to {total:.3f}")
    by_time = sorted(data["tasks"], key=lambda task: -task["count"] * task["in_place_s"])[:LEADING]
    names = [task["name"] for task in by_time]
    labels = [f"{t['name']} ×{t['count']}" if t["count"] > 1 else t["name"] for t in by_time]
    for where, rows, wanted in (
        ("table", tabled(page), names),
        ("chart", charted(page), labels),
    ):
        total = sum(share for _, share in rows)
        if abs(total - 1) > OFF:
            found.append(f"{where}: shares add up to {total:.3f}")
        leading = [name for name, _ in rows[: len(wanted)]]
        if leading != wanted:
            found.append(f"{where}: led by {', '.join(leading)}, not by {', '.join(wanted)}")
    return found


def check(network: str, budget: str, folder: Path) -> list[str]:
    """Optimize one network, print its row, and return what does not hold."""
    out, log = folder / "out", folder / "log"
    words = (
        "optimize", f"zoo:{network}", "--budget", budget,
        "--out", str(out), "--db", str(folder / "fresh.db"),
    )  # fmt: skip
    try:
        data = run_tilewright(words, log=log).answer["data"]
    except CommandFailed as error:
        print(f"{network:16} {budget:>5}  {error}: {log.read_text()[-500:]}")
        return [str(error)]
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    found = faults(data, manifest, (out / "report.html").read_text(encoding="utf-8"))
    alone = sum(task["latency_s"] is not None for task in data["tasks"])
    print(
        f"{network:16} {budget:>5}  {len(data['tasks']):4} tasks, {alone:4} measured alone, "
        f"{data['rest_share']:6.1%} outside them  {'; '.join(found) or 'holds'}",
        flush=True,
    )
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Check all networks with all budgets; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", nargs="+", default=BUDGETS)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    asked = parser.parse_args(words)
    failed = 0
    for budget in asked.budgets:
        for network in asked.networks:
            with TemporaryDirectory(prefix="shares-") as folder:
                failed += bool(check(network, budget, Path(folder)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

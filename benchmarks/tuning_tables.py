"""The tables of docs/benchmarks-tuning.md, made from the results of `tuning.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean

from kept import Item
from pages import replace_between, table
from tilewright.hardware.device import local_placement

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
SHARES = (0.01, 0.02, 0.05, 0.1)
FIXED = ("import", "start", "recall", "verify", "compile", "compare", "overhead")


def write_tables(results: Path, page: Path) -> None:
    """Replace what is between the page's marks."""
    replace_between(page, (BEGIN, END), rendered(results))


def rendered(results: Path) -> str:
    """All sections that have results."""
    placement = local_placement()
    cpu, threads = placement.target, placement.resources.threads
    parts = [f"CPU: {cpu.model}, {cpu.vector_bytes * 8}-bit vectors. Threads: {threads}."]
    for title, section, tables in (
        ("Regret on stored sweeps", "regret", _regret),
        ("Compared with MetaSchedule", "metaschedule", _metaschedule),
        ("resnet50 in three minutes", "budget", _budget),
        ("Operator level and subgraph level", "subgraph", _subgraph),
        ("All networks of the zoo", "zoo", _zoo),
    ):
        items = {
            path.parent.name: json.loads(path.read_text())
            for path in sorted((results / section).glob("*/result.json"))
        }
        if items:
            parts.append(f"## {title}\n\n{tables(items)}")
    return "\n\n".join(parts)


def _regret(items: Mapping[str, Item]) -> str:
    parts: list[str] = []
    for name, item in items.items():
        cells: dict[tuple[str, str], dict[float, Item]] = {}
        for row in item["rows"]:
            cells.setdefault((row["sweep"], row["tuner"]), {})[row["measured_share"]] = row
        rows = [
            [sweep, tuner, *(_regret_cell(found.get(share)) for share in SHARES)]
            for (sweep, tuner), found in cells.items()
        ]
        head = ["sweep", "tuner", *(f"regret, {share:.0%} measured" for share in SHARES)]
        spent = f"All replays took {item['wall_s']:.0f} s."
        parts.append(f"{name.capitalize()} sweeps. {spent}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _regret_cell(row: Item | None) -> str:
    if row is None:
        return "–"
    worst = row["regret_p90"]
    shown = "∞" if worst is None else f"{worst:.1%}"
    middle = row["regret_median"]
    return f"{'∞' if middle is None else f'{middle:.1%}'} ({shown})"


def _metaschedule(items: Mapping[str, Item]) -> str:
    rows: list[list[str]] = []
    for item in items.values():
        theirs = item["theirs_s"]
        rows.append(
            [
                item["task"],
                _time(item["default_s"]),
                _time(item["ours_s"]),
                f"{item['flop'] / item['ours_s'] / 1e9:.0f}",
                f"{item['ours_wall_s']:.0f} s",
                "no valid candidate" if theirs is None else _time(theirs),
                "–" if theirs is None else f"{item['flop'] / theirs / 1e9:.0f}",
                f"{item['theirs_wall_s']:.0f} s",
                "–" if theirs is None else f"{theirs / item['ours_s']:.2f}",
            ]
        )
    head = [
        "task",
        "our default settings",
        "our best of 30",
        "our GFLOP/s",
        "our search",
        "MetaSchedule's best of 64",
        "its GFLOP/s",
        "its search",
        "speed-up",
    ]
    return table(head, rows)


def _budget(items: Mapping[str, Item]) -> str:
    parts: list[str] = []
    for item in items.values():
        spent: Mapping[str, float] = item["seconds_by_phase"]
        busy = spent.get("build", 0.0) + spent.get("run", 0.0)
        thought = spent.get("model", 0.0) + spent.get("search", 0.0)
        fixed = sum(spent.get(name, 0.0) for name in FIXED)
        ratio = item["reference_latency_s"] / item["latency_s"]
        parts.append(
            f"Tuned with a budget of {item['budget']}, {item['network']} takes "
            f"{_time(item['latency_s'])} and ONNX Runtime {_time(item['reference_latency_s'])}, a "
            f"speed-up of {ratio:.3f}. The command took {item['wall_s']:.0f} s for "
            f"{item['measurements']} measurements and {item['failures']} failures. The search "
            f"itself (`model` and `search`) took {thought / max(1e-9, busy):.1%} of the time of "
            f"`build` and `run`. The other phases except `finalists` took {fixed:.1f} s.\n\n"
            + table(
                ["phase", "seconds"],
                [[f"`{name}`", f"{value:.1f}"] for name, value in spent.items()],
            )
        )
    return "\n\n".join(parts)


def _subgraph(items: Mapping[str, Item]) -> str:
    parts: list[str] = []
    for item in items.values():
        gain = item["network_gain"]
        rows = [
            [row["task"], _time(row["op_level_s"]), _time(row["subgraph_level_s"]), _ratio(row)]
            for row in item["rows"]
        ]
        head = ["task", "operator level", "subgraph level", "gain"]
        parts.append(
            f"The gain of the whole network {item['network']} is "
            f"{'–' if gain is None else f'{gain:.3f}'}.\n\n{table(head, rows)}"
        )
    return "\n\n".join(parts)


def _ratio(row: Item) -> str:
    return "–" if row["gain"] is None else f"{row['gain']:.3f}"


def _zoo(items: Mapping[str, Item]) -> str:
    rows: list[list[str]] = []
    gains: list[float] = []
    for name, item in items.items():
        ours, default = item["latency_s"], item["baseline_latency_s"]
        kept = any("default settings ran faster" in text for text in item["warnings"])
        gains.append(default / ours)
        rows.append(
            [
                name,
                _time(default),
                _time(ours),
                f"{default / ours:.3f}",
                "default" if kept else "tuned",
                f"{item['reference_latency_s'] / ours:.2f}",
                item["budget"],
                str(item["measurements"]),
                f"{item['wall_s']:.0f} s",
            ]
        )
    mean = geometric_mean(gains)
    head = [
        "network",
        "default settings",
        "shipped",
        "gain",
        "settings that shipped",
        "speed-up over ONNX Runtime",
        "budget, measurements",
        "measurements",
        "time of `tune`",
    ]
    return f"{table(head, rows)}\n\nThe geometric mean of the gains is {mean:.3f}."


def _time(value_s: float | None) -> str:
    if value_s is None:
        return "–"
    return f"{value_s * 1e3:.2f} ms" if value_s >= 1e-3 else f"{value_s * 1e6:.1f} µs"

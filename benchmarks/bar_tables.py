"""The tables of docs/benchmarks.md, made from the records of `bars.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bar_records import Record, Records
from pages import replace_between, table

BEGIN, END = "<!-- bars: begin -->", "<!-- bars: end -->"
SPEED_HEAD = (
    "network",
    "budget",
    "tilewright's latency",
    "tilewright's spread",
    "peer",
    "peer's precision",
    "peer's latency",
    "peer's spread",
    "speed-up",
    "latency with default settings",
    "relative error",
    "candidates measured",
    "time of `optimize`",
)
TITLES = {
    "budgets": "ResNet-50 by budget",
    "cnns": "Convolutional networks",
    "transformers": "Transformers",
}


def write_tables(page: Path, records: Records) -> None:
    """Replace what lies between the marks on the page."""
    replace_between(page, (BEGIN, END), rendered(records))


def rendered(records: Records) -> str:
    """All sections that have records."""
    parts = [_machines(records.every())]
    parts += [_speeds(title, records.section(name)) for name, title in TITLES.items()]
    parts += [
        _untuned(records.section("untuned")),
        _second(records.section("second")),
        _parts(records.section("parts")),
        _memory(records.every()),
        _failures(records.every()),
    ]
    return "\n\n".join(part for part in parts if part) or "Not measured yet."


def _machines(records: Sequence[Record]) -> str:
    """Each machine with its versions once, and the dates it was used."""
    dates: dict[str, list[str]] = {}
    for record in records:
        card: Mapping[str, str] = record.optimize.get("environment", {})
        if card:
            line = "; ".join(f"{name}: {text}" for name, text in card.items())
            dates.setdefault(line, []).append(record.date)
    return "\n".join(
        f"Measured on {' to '.join(dict.fromkeys((min(days), max(days))))}. {line}."
        for line, days in dates.items()
    )


def _speeds(title: str, records: Sequence[Record]) -> str:
    done = [record for record in records if record.compare]
    if not done:
        return ""
    rows = [_speed_row(record, row) for record in done for row in record.compare]
    text = f"### {title}\n\n{table(SPEED_HEAD, rows)}"
    budgets = dict.fromkeys(record.budget for record in done)
    for budget in budgets:
        same = [record for record in done if record.budget == budget]
        if len(same) > 1:
            text += "\n\n" + _summary(same, budget)
    return text


def _speed_row(record: Record, row: Mapping[str, Any]) -> list[str]:
    ours = record.optimize
    precision = row["precision"] + (" (the peer's default)" if row["default_precision"] else "")
    error = row["max_rel_error"]
    baseline_s = ours.get("baseline_latency_s")
    return [
        record.network,
        record.budget,
        _time(row["latency_s"]),
        f"{row['latency_spread']:.0%}",
        row["peer"],
        precision,
        _time(row["peer_latency_s"]),
        f"{row['peer_spread']:.0%}",
        f"{row['speedup']:.2f}",
        _time(baseline_s) if baseline_s else "–",
        "–" if error is None else f"{error:.0e}",
        str(ours.get("measurements", "–")),
        f"{record.wall_s:.0f} s",
    ]


def _summary(records: Sequence[Record], budget: str) -> str:
    """Geometric means by peer and precision, and the networks on which we are slower."""
    by_peer: dict[tuple[str, str], dict[str, float]] = {}
    for record in records:
        for row in record.compare:
            key = (row["peer"], row["precision"])
            by_peer.setdefault(key, {})[record.network] = row["speedup"]
    lines: list[str] = []
    for (peer, precision), speedups in by_peer.items():
        mean = geometric_mean(speedups.values())
        lost = sorted(name for name, value in speedups.items() if value < 1)
        worst = min(speedups, key=lambda name: speedups[name])
        lines.append(
            f"- With the budget {budget}, the speed-up over {peer} in {precision} has a geometric "
            f"mean of {mean:.3f} over {len(speedups)} networks and is least on {worst} "
            f"({speedups[worst]:.2f}). Networks on which tilewright is slower: "
            f"{', '.join(lost) or 'none'}."
        )
    return "\n".join(lines)


def _untuned(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        ours_s, theirs_s = record.compare[0]["latency_s"], record.untuned["latency_s"]
        return [record.network, _time(ours_s), _time(theirs_s), f"{theirs_s / ours_s:.0f}"]

    head = ("network", "tilewright's latency", "latency of TVM without tuning", "speed-up")
    return _section("TVM without tuning", head, [r for r in records if r.untuned], row)


def _second(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        count = record.optimize["measurements"] + record.optimize["failures"]
        return [record.network, record.budget, f"{record.wall_s:.1f} s", str(count)]

    head = ("network", "budget", "time of `optimize`", "trials")
    return _section("The same command a second time", head, [r for r in records if r.optimize], row)


def _parts(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        whole_s, sum_s = record.profile["network_latency_s"], record.profile["tasks_latency_s"]
        said = record.profile["explanation"] or "–"
        return [record.network, _time(whole_s), _time(sum_s), f"{sum_s / whole_s:.3f}", said]

    head = (
        "network",
        "latency of the network",
        "sum of the tasks' latencies",
        "sum ÷ network",
        "reason of a difference above 10 %",
    )
    return _section(
        "Sum of the tasks and whole network", head, [r for r in records if r.profile], row
    )


def _memory(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        peaks = record.peak_bytes
        ours = {name: size for name, size in peaks.items() if name.endswith("_worker")}
        parts = ", ".join(f"{name} {_size(size)}" for name, size in sorted(ours.items()))
        return [
            record.network,
            record.budget,
            _size(peaks.get("main", 0)),
            parts.replace("_", " ") or "–",
        ]

    head = ("network", "budget", "main process", "largest worker of each kind")
    done = [r for r in records if r.peak_bytes and r.section != "second"]
    return _section("Peak resident memory of `optimize`", head, done, row)


def _section(
    title: str,
    head: Sequence[str],
    records: Sequence[Record],
    row: Callable[[Record], list[str]],
) -> str:
    if not records:
        return ""
    return f"### {title}\n\n{table(head, [row(record) for record in records])}"


def _failures(records: Sequence[Record]) -> str:
    lines = [f"- {record.id}: {record.error}" for record in records if record.error]
    return "### Benchmarks that failed\n\n" + "\n".join(lines) if lines else ""


def _time(value_s: float) -> str:
    return f"{value_s * 1e3:.3g} ms" if value_s < 1 else f"{value_s:.3g} s"


def _size(value_bytes: int) -> str:
    return f"{value_bytes / (1 << 30):.2f} GiB"

"""The tables of docs/benchmarks.md, made from what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bar_records import Record, Records

BEGIN, END = "<!-- bars: begin -->", "<!-- bars: end -->"
SPEED_HEAD = (
    "network",
    "budget",
    "tilewright",
    "spread",
    "peer",
    "precision",
    "peer's time",
    "spread",
    "speed-up",
    "default settings",
    "error",
    "measurements",
    "whole command",
)
TITLES = {
    "budgets": "ResNet-50 by budget",
    "cnns": "Convolutional networks",
    "transformers": "Transformers",
}


def write_tables(page: Path, records: Records) -> None:
    """Replace what lies between the marks on the page."""
    text = page.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    page.write_text(f"{head}{BEGIN}\n{rendered(records)}\n{END}{tail}")


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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _machines(records: Sequence[Record]) -> str:
    """Each machine with its versions once, and the dates it was used."""
    dates: dict[str, list[str]] = {}
    for record in records:
        card: Mapping[str, str] = record.optimize.get("environment", {})
        if card:
            line = "; ".join(f"{name} {text}" for name, text in card.items())
            dates.setdefault(line, []).append(record.date)
    return "\n".join(
        f"Measured {' to '.join(dict.fromkeys((min(days), max(days))))} on: {line}."
        for line, days in dates.items()
    )


def _speeds(title: str, records: Sequence[Record]) -> str:
    done = [record for record in records if record.compare]
    if not done:
        return ""
    rows = [_speed_row(record, row) for record in done for row in record.compare]
    text = f"### {title}\n\n{_table(SPEED_HEAD, rows)}"
    budgets = dict.fromkeys(record.budget for record in done)
    for budget in budgets:
        same = [record for record in done if record.budget == budget]
        if len(same) > 1:
            text += "\n\n" + _summary(same, budget)
    return text


def _speed_row(record: Record, row: Mapping[str, Any]) -> list[str]:
    ours = record.optimize
    precision = row["precision"] + (" (its default)" if row["default_precision"] else "")
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
    """Geometric means by peer and precision, and how often we lose."""
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
            f"- Budget {budget}, {peer} {precision}: geometric mean {mean:.3f} over "
            f"{len(speedups)} networks; least {speedups[worst]:.2f} ({worst}); slower on "
            f"{len(lost)}{': ' + ', '.join(lost) if lost else ''}."
        )
    return "\n".join(lines)


def _untuned(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        ours_s, theirs_s = record.compare[0]["latency_s"], record.untuned["latency_s"]
        return [record.network, _time(ours_s), _time(theirs_s), f"{theirs_s / ours_s:.0f} times"]

    head = ("network", "tilewright", "TVM untuned", "faster")
    return _section("TVM without tuning", head, [r for r in records if r.untuned], row)


def _second(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        count = record.optimize["measurements"] + record.optimize["failures"]
        return [record.network, record.budget, f"{record.wall_s:.1f} s", str(count)]

    head = ("network", "budget", "whole command", "measurements")
    return _section("The same command again", head, [r for r in records if r.optimize], row)


def _parts(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        whole_s, sum_s = record.profile["network_latency_s"], record.profile["tasks_latency_s"]
        said = record.profile["explanation"] or "–"
        return [record.network, _time(whole_s), _time(sum_s), f"{sum_s / whole_s:.3f}", said]

    head = ("network", "network", "sum of tasks", "ratio", "explanation")
    return _section("Parts and whole", head, [r for r in records if r.profile], row)


def _memory(records: Sequence[Record]) -> str:
    def row(record: Record) -> list[str]:
        peaks = record.peak_bytes
        ours = {name: size for name, size in peaks.items() if name.endswith("_worker")}
        parts = ", ".join(f"{name} {_size(size)}" for name, size in sorted(ours.items()))
        return [record.network, record.budget, _size(peaks.get("main", 0)), parts or "–"]

    head = ("network", "budget", "main process", "workers, each")
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
    return f"### {title}\n\n{_table(head, [row(record) for record in records])}"


def _failures(records: Sequence[Record]) -> str:
    lines = [f"- {record.id}: {record.error}" for record in records if record.error]
    return "### Failed\n\n" + "\n".join(lines) if lines else ""


def _time(value_s: float) -> str:
    return f"{value_s * 1e3:.3g} ms" if value_s < 1 else f"{value_s:.3g} s"


def _size(value_bytes: int) -> str:
    return f"{value_bytes / (1 << 30):.2f} GiB"

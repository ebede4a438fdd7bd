"""What results of `on_a_card.py` say, and how they get into a database."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from card.archive import lines
from pages import table
from tilewright.core.codec import convert
from tilewright.core.records import Candidate, EnergyUse, Measurement
from tilewright.graph.workload import parse_workload
from tilewright.hardware.cards import Card
from tilewright.measure.accesses.cuda import placement_on
from tilewright.measure.circumstances import kernel_protocol
from tilewright.store import open_store

Line = dict[str, Any]

_TUNED_S = 60.0


def report(results: Sequence[Line]) -> Iterator[str]:
    """Tables of every part that is there."""
    cards = [line["card"]["name"] for line in results if line["part"] == "card"]
    yield f"Measured on: {', '.join(dict.fromkeys(cards)) or 'nothing'}"
    for part, tell in _TABLES.items():
        found = [line for line in results if line["part"] == part]
        if found:
            failures = sum("failure" in line for line in found)
            yield f"\n## {part}: {len(found)} results, {failures} failures\n"
            yield from tell(found, results)


def _checks(found: Sequence[Line], _results: Sequence[Line]) -> Iterator[str]:
    rows: list[list[str]] = []
    for name in sorted({_implementation(line) for line in found}):
        own = [line for line in found if _implementation(line) == name]
        told = [line for line in own if "error" in line]
        wrong = [line for line in told if not line["error"] <= line["bound"]]
        worst = max((line["error"] / line["bound"] for line in told), default=0.0)
        failed = len(own) - len(told)
        rows.append([name, str(len(own)), str(failed), str(len(wrong)), f"{worst:.2g}"])
    columns = ["implementation", "kernels", "failed", "wrong", "largest error ÷ bound"]
    yield table(columns, rows)


def _defaults(found: Sequence[Line], results: Sequence[Line]) -> Iterator[str]:
    torch = {line["task"]: line for line in results if line["part"] == "torch"}
    rows: list[list[str]] = []
    for network, batch in dict.fromkeys(
        (_of(line, "network"), _of(line, "batch")) for line in found
    ):
        own = [it for it in found if (_of(it, "network"), _of(it, "batch")) == (network, batch)]
        times_s = {(it["task"], _of(it, "setting")): _s(it) for it in own if "samples_s" in it}
        tasks = dict.fromkeys(task for task, _ in times_s)
        ours = {task: times_s.get((task, "default")) for task in tasks}
        in_tf32 = {task: times_s.get((task, "tf32"), ours[task]) for task in tasks}
        baselines = {task: times_s.get((task, "baseline")) for task in tasks}
        whole = {task: _s(torch[task]) for task in tasks if "samples_s" in torch.get(task, {})}
        anchors, allowed = (
            {task: median(torch[task][of]) for task in tasks if of in torch.get(task, {})}
            for of in ("anchor_s", "tf32_s")
        )
        ratios = [_ratio(other, ours) for other in (baselines, whole, anchors)]
        ratios += [_ratio(allowed, in_tf32), _ratio(ours, in_tf32)]
        rows.append([str(network), str(batch), str(len(tasks)), *ratios])
    columns = [
        "network", "batch", "operators", "TVM's schedules ÷ ours", "PyTorch ÷ ours",
        "its main operator alone ÷ ours", "with tf32: PyTorch ÷ ours", "ours without ÷ with tf32",
    ]  # fmt: skip
    yield table(columns, rows)


def _tuning(found: Sequence[Line], results: Sequence[Line]) -> Iterator[str]:
    torch = {line["task"]: line for line in results if line["part"] == "torch"}
    rows: list[list[str]] = []
    for network in dict.fromkeys(_of(line, "network") for line in found):
        own, spent_s, best = [it for it in found if _of(it, "network") == network], 0.0, {}
        first: dict[str, float | None] = {}
        for line in sorted(own, key=lambda line: _of(line, "rank")):
            spent_s += line["wall_s"]
            if spent_s > _TUNED_S or "samples_s" not in line:
                continue
            first.setdefault(line["task"], _s(line))
            best[line["task"]] = min(_s(line), best.get(line["task"], _s(line)))
        rivals = {task: _s(torch[task]) for task in best if "samples_s" in torch.get(task, {})}
        rows.append([str(network), str(len(best)), _ratio(first, best), _ratio(rivals, best)])
    columns = ["network", "operators in 60 s", "default ÷ tuned", "PyTorch ÷ tuned"]
    yield table(columns, rows)


def _study(found: Sequence[Line], _results: Sequence[Line]) -> Iterator[str]:
    for operator in dict.fromkeys(_of(line, "operator") for line in found):
        rows: dict[tuple[str, int], dict[str, str]] = {}
        for line in found:
            if _of(line, "operator") == operator and "samples_s" in line:
                at = rows.setdefault((_of(line, "parameter"), _of(line, "value")), {})
                at[_of(line, "setting")] = f"{_s(line) * 1e6:.1f}"
        yield f"{operator}, µs\n"
        shown = {
            "default": "default settings",
            "channels last": "with channels last",
            "baseline": "TVM's schedule",
        }
        columns = ["parameter", "value", *shown.values()]
        cells = (
            [name, str(value), *(times.get(setting, "") for setting in shown)]
            for (name, value), times in rows.items()
        )
        yield table(columns, list(cells))


def _power(found: Sequence[Line], _results: Sequence[Line]) -> Iterator[str]:
    told = [line["power_w"] for line in found if "power_w" in line]
    reasons = dict.fromkeys(line["reason"] for line in found if "reason" in line)
    exact = [it for it in found if it.get("measured_bytes")]
    off = [it["measured_bytes"] / max(1, it["planned_bytes"]) for it in exact]
    if off:
        yield f"{len(off)} kernels took {median(off):.3f} of the planned memory, in the median"
    if told:
        yield f"{len(told)} kernels draw {min(told):.0f} to {max(told):.0f} W"
    yield from reasons


def _rows(found: Sequence[Line], _results: Sequence[Line]) -> Iterator[str]:
    families = [_of(line, "family") for line in found if "samples_s" in line]
    counted = [[name, str(families.count(name))] for name in dict.fromkeys(families)]
    yield table(["family", "kernels with times"], counted)


_TABLES = {
    "checks": _checks,
    "defaults": _defaults,
    "tuning": _tuning,
    "study": _study,
    "rows": _rows,
    "power": _power,
}


def store(results: Path, location: str) -> int:
    """Put the times and energies of all parts into a database; how many measurements those are."""
    found = list(lines(results))
    energies = {line["key"]: line for line in found if line["part"] == "power"}
    count, placement, taken_at = 0, None, time.time()
    with open_store(location) as database:
        for line in found:
            if line["part"] == "card":
                placement = placement_on(convert(line["card"], Card))
                taken_at = line["at"]
                database.add_device(placement.device)
            elif "samples_s" in line and "candidate" in line and placement is not None:
                workload = parse_workload(line["workload"])
                database.add_workload(workload)
                measured = Measurement(
                    workload_key=workload.key,
                    candidate=convert(line["candidate"], Candidate),
                    device_class=placement.device.class_key,
                    resources=placement.resources,
                    protocol=kernel_protocol(placement),
                    kernel_hash=line["kernel_hash"],
                    samples_s=tuple(line["samples_s"]),
                    build_s=line["build_s"],
                    created_at=taken_at,
                    instance=placement.device.instance,
                    energy=_energy(energies.get(line["key"])),
                )
                database.add([measured])
                count += 1
    return count


def _energy(line: Line | None) -> EnergyUse | None:
    if line is None or "energy_j" not in line:
        return None
    return EnergyUse(
        method=line["method"],
        energy_j=line["energy_j"],
        power_w=line["power_w"],
        samples_j=(line["energy_j"],),
        runs=line["calls"],
        window_s=line["window_s"],
    )


def _of(line: Line, label: str) -> Any:
    return line["labels"].get(label)


def _implementation(line: Line) -> str:
    return line["candidate"]["implementation"]


def _s(line: Line) -> float:
    return median(line["samples_s"])


def _ratio(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Geometric mean of their times by ours, over the tasks that both have."""
    both = [theirs[task] / ours[task] for task in ours if theirs.get(task) and ours[task]]
    return f"{geometric_mean(both):.2f} ({len(both)})" if both else "–"

"""What results of `on_a_card.py` say, and how they get into a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from card.archive import lines
from pages import table
from tilewright.core.codec import convert
from tilewright.core.records import Candidate, EnergyUse, Measurement, Placement
from tilewright.core.targets import GPU_PIECE_BYTES
from tilewright.core.units import format_bytes
from tilewright.graph.workload import parse_workload
from tilewright.hardware.cards import Card
from tilewright.measure.accesses.cuda import placement_on
from tilewright.measure.circumstances import kernel_protocol
from tilewright.store import open_store

Line = dict[str, Any]

ALL = "all"
_TUNED_S = 60.0
_NO_KERNEL_S = 0.5e-6
_FEW = 8


def report(results: Sequence[Line]) -> Iterator[str]:
    """Tables of every part that is there. Of several results of one kernel the last one counts, and
    PyTorch's times are those of the same card."""
    results = list(_with_cards(results))
    cards = [line["card"]["name"] for line in results if line["part"] == "card"]
    yield f"Measured on: {', '.join(dict.fromkeys(cards)) or 'nothing'}"
    for part, tell in _TABLES.items():
        found = [line for line in results if line["part"] == part]
        if found:
            failures = sum("failure" in line for line in found)
            yield f"\n### {part}: {len(found)} results, {failures} failures\n"
            yield from tell(found, results)


def _with_cards(results: Sequence[Line]) -> Iterator[Line]:
    """The same lines, each with the identity of the card of its run as `on`."""
    card = ""
    for line in results:
        card = line["card"].get("identity", "") if line["part"] == "card" else card
        yield {**line, "on": card}


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
    rivals = [_rivals(results, of) for of in ("samples_s", "anchor_s", "tf32_s")]
    rows: list[list[str]] = []
    asked = dict.fromkeys((_of(line, "network"), _of(line, "batch")) for line in found)
    for network, batch in [*asked, *((ALL, batch) for batch in dict.fromkeys(b for _, b in asked))]:
        own = [it for it in found if _of(it, "network") == network or network == ALL]
        own = [it for it in own if _of(it, "batch") == batch and "samples_s" in it]
        times_s = {(_of(it, "network"), it["task"], _of(it, "setting")): _s(it) for it in own}
        tasks = dict.fromkeys(key[:2] for key in times_s)
        ours = {task: times_s.get((*task, "default")) for task in tasks}
        in_tf32 = {task: times_s.get((*task, "tf32"), ours[task]) for task in tasks}
        baselines = {task: times_s.get((*task, "baseline")) for task in tasks}
        cards = {(_of(it, "network"), it["task"]): it["on"] for it in own}
        whole, anchors, allowed = (
            {it: of.get((cards[it], it[1])) for it in tasks} for of in rivals
        )
        ratios = [_ratio(other, ours) for other in (baselines, whole, anchors)]
        ratios += [_ratio(allowed, in_tf32), _ratio(ours, in_tf32)]
        rows.append([str(network), str(batch), str(len(tasks)), *ratios])
    columns = [
        "network", "batch", "operators", "TVM's schedules ÷ ours", "PyTorch ÷ ours",
        "its main operator alone ÷ ours", "with tf32: PyTorch ÷ ours", "ours without ÷ with tf32",
    ]  # fmt: skip
    yield table(columns, rows)


def _rivals(results: Sequence[Line], of: str) -> dict[tuple[str, str], float]:
    """PyTorch's seconds by card and task, where it starts a kernel: views cost it nothing, and are
    not compared with copies."""
    told = [line for line in results if line["part"] == "torch" and of in line]
    times_s = {(line["on"], line["task"]): median(line[of]) for line in told}
    return {task: seconds for task, seconds in times_s.items() if seconds > _NO_KERNEL_S}


def _tuning(found: Sequence[Line], results: Sequence[Line]) -> Iterator[str]:
    torch = _rivals(results, "samples_s")
    rows: list[list[str]] = []
    firsts: dict[Any, float | None] = {}
    bests: dict[Any, float] = {}
    for network in dict.fromkeys(_of(line, "network") for line in found):
        own, spent_s = [it for it in found if _of(it, "network") == network], 0.0
        for line in sorted(own, key=lambda line: _of(line, "rank")):
            spent_s += line["wall_s"]
            if spent_s > _TUNED_S or "samples_s" not in line:
                continue
            task = network, line["task"], line["on"]
            firsts.setdefault(task, _s(line))
            bests[task] = min(_s(line), bests.get(task, _s(line)))
    for network in [*dict.fromkeys(network for network, *_ in bests), ALL]:
        best = {task: each for task, each in bests.items() if network in (task[0], ALL)}
        rivals = {task: torch.get((task[2], task[1])) for task in best}
        rows.append([str(network), str(len(best)), _ratio(firsts, best), _ratio(rivals, best)])
    columns = ["network", "operators in 60 s", "default ÷ tuned", "PyTorch ÷ tuned"]
    yield table(columns, rows)


def _codes(found: Sequence[Line], _results: Sequence[Line]) -> Iterator[str]:
    settings = ("codes", "singles", "baseline", "codes, channels last", "singles, channels last")
    times_s = {
        setting: {
            _of(line, "operator"): _s(line)
            for line in found
            if _of(line, "setting") == setting and "samples_s" in line
        }
        for setting in settings
    }
    names = dict.fromkeys(_of(line, "operator") for line in found)
    rows = [[name, *(_micro(times_s[it].get(name)) for it in settings)] for name in names]
    yield table(["product", *(f"{it}, µs" for it in settings)], rows)
    plain, last = (
        _ratio(times_s[f"singles{where}"], times_s[f"codes{where}"])
        for where in ("", ", channels last")
    )
    yield f"singles ÷ codes: {plain}; with channels last: {last}"


def _micro(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e6:.1f}"


_SETTINGS = {
    "default": "default settings",
    "channels last": "with channels last",
    "baseline": "TVM's schedule",
}


def _study(found: Sequence[Line], results: Sequence[Line]) -> Iterator[str]:
    """Few values one by one, with power; many as their range and the largest step."""
    watts = {line["key"]: line["power_w"] for line in results if "power_w" in line}
    for operator in dict.fromkeys(_of(line, "operator") for line in found):
        own = [it for it in found if _of(it, "operator") == operator and "samples_s" in it]
        for parameter in dict.fromkeys(_of(line, "parameter") for line in own):
            mine = [line for line in own if _of(line, "parameter") == parameter]
            values = sorted({_of(line, "value") for line in mine})
            told = {(_of(line, "setting"), _of(line, "value")): line for line in mine}
            yield f"\n{operator}, {parameter} {values[0]} to {values[-1]}\n"
            rows: list[list[str]] = []
            for setting, name in _SETTINGS.items():
                lines_of = [told.get((setting, value)) for value in values]
                times = [1e6 * _s(line) for line in lines_of if line is not None]
                if not times:
                    continue
                if len(values) <= _FEW:
                    cells = ["" if it is None else _time_and_power(it, watts) for it in lines_of]
                else:
                    steps = [max(a / b, b / a) for a, b in pairwise(times)]
                    cells = [f"{min(times):.1f} to {max(times):.1f} µs", f"{max(steps):.2f}"]
                rows.append([name, *cells])
            several = ["range", "largest step"]
            columns = ["settings", *(map(str, values) if len(values) <= _FEW else several)]
            yield table(columns, rows)


def _time_and_power(line: Line, watts: dict[str, float]) -> str:
    power = f", {watts[line['key']]:.0f} W" if line["key"] in watts else ""
    return f"{1e6 * _s(line):.1f} µs{power}"


def _power(found: Sequence[Line], _results: Sequence[Line]) -> Iterator[str]:
    told = [line["power_w"] for line in found if "power_w" in line]
    reasons = dict.fromkeys(line["reason"] for line in found if "reason" in line)
    taken = [it for it in found if it.get("measured_bytes")]
    whole = [-(-it["planned_bytes"] // GPU_PIECE_BYTES) * GPU_PIECE_BYTES for it in taken]
    same = sum(it["measured_bytes"] == size for it, size in zip(taken, whole, strict=True))
    if taken:
        pieces = format_bytes(GPU_PIECE_BYTES)
        yield f"{same} of {len(taken)} kernels took the planned memory, in pieces of {pieces}\n"
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
    "codes": _codes,
    "rows": _rows,
    "power": _power,
}


def store(results: Path, location: str) -> int:
    """Put the times and energies of all parts into a database; how many measurements those are.

    A kernel's energy is kept with its times on the same card. Where that card was not asked for
    its time, there is one measurement with the seconds of a call while the meter ran, `call_s`.
    """
    found = list(_on_cards(results))
    timed = {(on.device.instance, line["key"]) for on, _, line in found if "samples_s" in line}
    energies = {
        (on.device.instance, line["key"]): line for on, _, line in found if "energy_j" in line
    }
    kept = [
        (on, at, line, energies.get((on.device.instance, line["key"])))
        for on, at, line in found
        if "samples_s" in line
        or ("energy_j" in line and (on.device.instance, line["key"]) not in timed)
    ]
    with open_store(location) as database:
        for on, taken_at, line, energy in kept:
            workload = parse_workload(line["workload"])
            database.add_device(on.device)
            database.add_workload(workload)
            measured = Measurement(
                workload_key=workload.key,
                candidate=convert(line["candidate"], Candidate),
                device_class=on.device.class_key,
                resources=on.resources,
                protocol=kernel_protocol(on),
                kernel_hash=line["kernel_hash"],
                samples_s=tuple(line.get("samples_s") or [line["call_s"]]),
                build_s=line["build_s"],
                created_at=taken_at,
                instance=on.device.instance,
                energy=_energy(energy),
            )
            database.add([measured])
    return len(kept)


def _on_cards(results: Path) -> Iterator[tuple[Placement, float, Line]]:
    """What was measured of kernels, with the card and the second since 1970 of its run."""
    run: tuple[Placement, float] | None = None
    for line in lines(results):
        if line["part"] == "card":
            run = placement_on(convert(line["card"], Card)), line["at"]
        elif "candidate" in line and run is not None:
            yield (*run, line)


def _energy(line: Line | None) -> EnergyUse | None:
    if line is None:
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

"""Tables of what `many_cores.py` measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median, quantiles
from typing import Any

from pages import table

Line = dict[str, Any]


def report(lines: Sequence[Line]) -> Iterator[str]:
    """Networks, then operators."""
    for line in (line for line in lines if "failure" in line):
        yield f"failed: {', '.join(f'{k} {v}' for k, v in line.items() if k != 'at_s')}"
    yield networks(lines)
    yield ""
    yield operators(lines)


def networks(lines: Sequence[Line]) -> str:
    """What each way to run a network takes, beside all cores for each call and beside the best one
    number of cores, and what the plan takes in thought."""
    taken: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for line in _of("time", lines):
        taken[line["network"], line["way"], line["cores"]].append(median(line["samples_s"]))
    thought = {
        (line["network"], line["way"]): line["simulated_s"] for line in _of("simulated", lines)
    }
    same = {(line["network"], line["way"]): line for line in _of("same", lines)}
    about = {(e["network"], e["way"]): e["told"] for e in _of("begun", lines) if "network" in e}
    rows: list[list[str]] = []
    for name in dict.fromkeys(network for network, _, _ in taken):
        most = max(cores for network, _, cores in taken if network == name)
        in_turn = {
            cores: median(each)
            for (network, way, cores), each in taken.items()
            if (network, way) == (name, "sequence")
        }
        for (network, way, cores), rounds in taken.items():
            if network != name:
                continue
            told, found_s = about.get((name, way), {}), median(rounds)
            row = [name, way if way != "sequence" else f"in turn on {cores}", _ms(rounds)]
            row.append(f"{in_turn[most] / found_s:.2f}" if most in in_turn else "")
            row.append(f"{min(in_turn.values()) / found_s:.2f}" if in_turn else "")
            if way == "sequence":
                rows.append([*row, "", "", ""])
                continue
            thought_s = thought.get((name, way))
            row += (
                ["", ""] if thought_s is None else [_ms([thought_s]), f"{thought_s / found_s:.2f}"]
            )
            check = same.get((name, way), {"bit_for_bit": False, "error": float("nan")})
            equal = "the same bits" if check["bit_for_bit"] else f"{check['error']:.0e}"
            rows.append(
                [*row, f"{told.get('wide', 0)} stages, {told.get('lanes', 1)} lanes; {equal}"]
            )
    return table(
        ["network", "way", "ms", "over all cores", "over best", "simulated", "/ run", "what"], rows
    )


def operators(lines: Sequence[Line]) -> str:
    """Milliseconds of each operator by cores and neighbours."""
    points = grid(lines)
    counts = sorted({cores for _, cores, _ in points})
    rows = [
        [
            f"`{text}`",
            str(beside),
            *(
                f"{1e3 * points[text, c, beside]:.3f}" if (text, c, beside) in points else ""
                for c in counts
            ),
        ]
        for text in dict.fromkeys(text for text, _, _ in points)
        for beside in sorted({b for t, _, b in points if t == text})
    ]
    return table(["operator", "neighbours", *(f"{cores} cores" for cores in counts)], rows)


def grid(lines: Iterable[Line]) -> dict[tuple[str, int, int], float]:
    """Median seconds by operator, cores and neighbours, over all turns."""
    samples: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for line in _of("grid", lines):
        samples[line["operator"], line["cores"], line["beside"]] += line["samples_s"]
    return {point: median(each) for point, each in samples.items()}


def _of(part: str, lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line["part"] == part and "failure" not in line)


def _ms(rounds: Sequence[float]) -> str:
    if len(rounds) < 2:
        return f"{1e3 * rounds[0]:.2f}"
    low, _, high = quantiles(rounds, n=4, method="inclusive")
    return f"{1e3 * median(rounds):.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})"

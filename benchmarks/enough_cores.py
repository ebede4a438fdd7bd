"""How many cores suffice for operators, measured and told: `tilewright study cores` for several.

    python benchmarks/enough_cores.py run --out enough_cores.jsonl --cores 1,2 --seconds 200
    python benchmarks/enough_cores.py report enough_cores.jsonl

`run` studies each operator alone and beside neighbours, and writes its result as a line at once; a
repeated command goes on with those that are missing. `report` writes tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tilewright
from card.archive import lines
from pages import table
from tilewright.core.codec import to_builtins
from tilewright.insight.core_design import CoresDesign
from tilewright.plan.scheduling.planners.threads import GAINS

OPERATORS = (
    "op:conv2d[c=64,h=56,k=3,pad=1,out=64]", "op:conv2d[c=256,h=14,k=3,pad=1,out=256]",
    "op:conv2d[c=64,h=56,k=1,pad=0,out=256]", "op:depthwise[c=144,h=56,k=3,pad=1]",
    "op:dense[m=1,k=4096,n=4096]", "op:dense[m=1,k=512,n=1000]",
    "op:max_pool2d[c=64,h=112,k=3,stride=2,pad=1]", "op:softmax[shape=1x12x128x128]",
    "op:batch_matmul[b=12,m=128,k=64,n=128]", "op:add[shape=1x64x56x56]",
    "op:layer_norm[shape=128x768]", "op:conv2d[c=44,h=14,k=1,pad=0,out=44]",
)  # fmt: skip
Line = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--operators", nargs="*", default=OPERATORS)
    run.add_argument("--cores", default="", help="numbers of cores, separated by commas")
    run.add_argument("--beside", nargs="*", default=CoresDesign().beside)
    run.add_argument("--seconds", type=float, default=200.0, help="nothing begins afterwards")
    report = commands.add_parser("report")
    report.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "run":
        cores = tuple(int(each) for each in given.cores.split(",") if each)
        design = CoresDesign(cores=cores, beside=tuple(given.beside), gains=GAINS)
        studied(given.out, given.operators, design, given.seconds)
    else:
        print("\n\n".join(told(lines(given.file))))


def studied(out: Path, operators: Sequence[str], design: CoresDesign, seconds: float) -> None:
    """Study the operators that the file does not have, until time is up."""
    until_s = time.monotonic() + seconds
    known = {line["model"] for line in lines(out)} if out.exists() else set[str]()
    with tilewright.open(db="memory:") as session:
        for operator in (each for each in operators if each not in known):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            found = session.study_cores(operator, design=design, budget=f"{max(1, int(left_s))}s")
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(to_builtins(found)) + "\n")


def told(studies: Iterable[Line]) -> Iterator[str]:
    """Times, then turning points, then how many of these are told within one step."""
    rows = [row for study in studies for row in study["rows"]]
    counts = sorted({each["cores"] for row in rows for each in row["times"]})
    yield table(
        ["operator", "beside", *(f"{n}: measured, told µs" for n in counts)],
        [[f"`{row['task']}`", row["beside"], *_times(row, counts)] for row in rows],
    )
    gains = [point["gain"] for point in rows[0]["points"]] if rows else []
    yield table(
        ["operator", "beside", *(f"{gain:.0%} longer: measured, told" for gain in gains), "of all"],
        [
            [
                f"`{row['task']}`",
                row["beside"],
                *(f"{each['measured']}, {each['told']}" for each in row["points"]),
                ", ".join(f"{e['predicted']} ({e['low']} to {e['high']})" for e in row["points"]),
            ]
            for row in rows
            if row["points"][0]["measured"] is not None
        ],
    )
    steps = [e["steps"] for row in rows for e in row["points"] if e["steps"] is not None]
    near = [sum(abs(each) <= most for each in steps) for most in (0, 1)]
    yield f"The same number: {near[0]} of {len(steps)}; one step off at most: {near[1]}."


def _times(row: Line, counts: Sequence[int]) -> Iterator[str]:
    known = {each["cores"]: each for each in row["times"]}
    for each in map(known.get, counts):
        if each is None:
            yield ""  # a repeated command may ask for other numbers of cores
            continue
        told_us, measured_s = 1e6 * each["predicted_s"], each["measured_s"]
        yield f"{1e6 * measured_s:.1f}, {told_us:.1f}" if measured_s else f"{told_us:.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])

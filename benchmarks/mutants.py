"""How much the quick tiers of tests see: changes of one place, and which tests fail for them.

    python benchmarks/mutants.py --map            # which test file runs which lines, once
    python benchmarks/mutants.py --count 100      # then the changes, one after the other
    python benchmarks/mutants.py --report

Needs the package `coverage`. Each change (`mutation.py`) is made in a copy of the sources; the test
files of tests/unit and tests/compiler that run its line are run until one fails. A change that none
notices survives; tests/end_to_end is not asked. Both steps go on where they stopped, and changes
are judged anew when the sources change. Ends with 1 when fewer than 85 % of the changes are seen.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutation import Mutant, mutants

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "tilewright"
TIERS = ("tests/unit", "tests/compiler")
RESULTS = Path(__file__).parent / "results" / "mutants"
BAR = 0.85
_MOST_S = 900


def main(argv: Sequence[str] | None = None) -> int:
    """Map, judge or report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--map", action="store_true", help="run each test file under coverage")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args(argv)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if given.map:
        return _map()
    drawn = mutants(SOURCES, count=given.count, seed=given.seed)
    known = {row["name"]: row for row in _rows("judged.jsonl")}
    lines = _lines_of_tests()
    for mutant in drawn if not given.report else []:
        if mutant.name not in known:
            row = {**asdict(mutant), "name": mutant.name, **_judged(mutant, lines)}
            known[mutant.name] = row
            _add("judged.jsonl", row)
            print(f"{row['verdict']:9}{mutant.name}  {row['by']}", flush=True)
    return _report([known[m.name] for m in drawn if m.name in known])


def _map() -> int:
    """What each test file runs: lines by file of the package, and the seconds that it takes."""
    done = {row["test"] for row in _rows("map.jsonl")}
    tests = [path for tier in TIERS for path in sorted((ROOT / tier).rglob("test_*.py"))]
    for path in tests:
        name = path.relative_to(ROOT).as_posix()
        if name not in done:
            _add("map.jsonl", _mapped(name))
            print(name, flush=True)
    return 0


def _mapped(test: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "coveragerc"
        config.write_text(
            f"[run]\nsource = {SOURCES}\nparallel = true\npatch = subprocess\n"
            f"data_file = {scratch}/data\n"
        )
        coverage = [sys.executable, "-m", "coverage"]
        began_s = time.monotonic()
        command = [*coverage, "run", f"--rcfile={config}", "-m", "pytest", "-q", "-n", "0", test]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        took_s = time.monotonic() - began_s
        subprocess.run(
            [*coverage, "combine", f"--rcfile={config}"], cwd=ROOT, capture_output=True, check=False
        )
        made = Path(scratch) / "lines.json"
        subprocess.run(
            [*coverage, "json", f"--rcfile={config}", "-o", str(made)],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        files = json.loads(made.read_text())["files"] if made.exists() else {}
    lines = {
        Path(file).resolve().relative_to(SOURCES).as_posix(): found["executed_lines"]
        for file, found in ((str(ROOT / name), found) for name, found in files.items())
        if found["executed_lines"]
    }
    return {"test": test, "seconds": round(took_s, 1), "lines": lines}


def _lines_of_tests() -> dict[str, tuple[float, dict[str, set[int]]]]:
    rows = _rows("map.jsonl")
    if not rows:
        sys.exit("first: python benchmarks/mutants.py --map")
    return {
        row["test"]: (row["seconds"], {file: set(n) for file, n in row["lines"].items()})
        for row in rows
    }


def _judged(
    mutant: Mutant, lines: dict[str, tuple[float, dict[str, set[int]]]]
) -> dict[str, str | int]:
    """Which test file fails first, of those that run the line: the room's own first, then by the
    time that they take."""
    room = mutant.file.split("/")[0]
    asked = sorted(
        (f"/{room}/" not in test, seconds, test)
        for test, (seconds, run) in lines.items()
        if mutant.line in run.get(mutant.file, ())
    )
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        changed = copy / "tilewright" / mutant.file
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        tests = [test for _, _, test in asked]
        failed = _first_failing(tests, copy) if tests else ""
    verdict = "seen" if failed else "survives" if tests else "never run"
    return {"verdict": verdict, "by": failed, "asked": len(tests)}


def _first_failing(tests: Sequence[str], sources: Path) -> str:
    """The test that fails first with other sources; one that hangs counts as failed."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(
            [*command, *tests],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_MOST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "time ran out"
    if ended.returncode == 0:
        return ""
    lines = [text for text in ended.stdout.splitlines() if text.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0] if lines else f"pytest ended with {ended.returncode}"


def _report(rows: Sequence[dict[str, Any]]) -> int:
    seen: dict[str, list[bool]] = {}
    for row in rows:
        seen.setdefault(row["file"].split("/")[0], []).append(row["verdict"] == "seen")
    for room, found in sorted(seen.items()):
        print(f"{room:12}{sum(found):4} of {len(found)}")
    for row in rows:
        if row["verdict"] != "seen":
            print(f"{row['verdict']:11}{row['name']}")
    total = sum(row["verdict"] == "seen" for row in rows)
    print(f"{total} of {len(rows)} seen" + (f", {total / len(rows):.0%}" if rows else ""))
    return 0 if rows and total / len(rows) >= BAR else 1


def _rows(name: str) -> list[dict[str, Any]]:
    path = RESULTS / name
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    return [json.loads(line) for line in whole]


def _add(name: str, row: dict[str, Any]) -> None:
    with (RESULTS / name).open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())

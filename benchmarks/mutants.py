"""How much the quick tiers of tests see: changes of one place, and which tests fail for them.

    python benchmarks/mutants.py [--count 100] [--seed 0] [--jobs 2] [--report]

First each test file of tests/unit and tests/compiler is run once to
see which functions it calls; then each change (`mutation.py`) is made in a copy of the sources, and
the test files that call its function are run, one after the other, until one fails that passes
without the change. A change that none notices survives; tests/end_to_end is not asked. The same
command goes on where it stopped: a test file is looked at anew when it changes, a change is judged
anew when its function changes, and one that survived when tests that call it change. Ends with 1
when fewer than 85 % of the changes are seen.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

from coverage import CoverageData

from mutation import Mutant, functions, mutants

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "tilewright"
TIERS = ("tests/unit", "tests/compiler")
RESULTS = Path(__file__).parent / "results" / "mutants"
BAR = 0.85
HANGS_AFTER_S = 120
"""A test file that takes so much longer than ten times its own time hangs."""

Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Look at tests, judge changes, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args(argv)
    RESULTS.mkdir(parents=True, exist_ok=True)
    drawn = mutants(SOURCES, count=given.count, seed=given.seed)
    if not given.report:
        with ThreadPoolExecutor(given.jobs) as pool:
            seen_before = {row["test"]: row["digest"] for row in _rows("tests.jsonl")}
            tests = [path for tier in TIERS for path in sorted((ROOT / tier).rglob("test_*.py"))]
            new = [path for path in tests if seen_before.get(_name(path)) != _digest(path)]
            _done("tests.jsonl", pool.map(_looked_at, new), "test")
            called = [row for row in _rows("tests.jsonl") if (ROOT / row["test"]).exists()]
            known = _verdicts(drawn)
            unknown = [m for m in drawn if m.name not in known or _open(known[m.name], called)]
            killers = {_file_of(row["by"]) for row in _rows("judged.jsonl") if row["by"]}
            judge = partial(_judged, called=called, killers=killers)
            _done("judged.jsonl", pool.map(judge, unknown), "name")
    known = _verdicts(drawn)
    return _report([known[each.name] for each in drawn if each.name in known])


def _verdicts(drawn: Sequence[Mutant]) -> dict[str, Row]:
    """What is known of changes in functions as they are now."""
    texts = {(each.file, each.function, each.text) for each in drawn}
    rows = _rows("judged.jsonl")
    return {
        row["name"]: row for row in rows if (row["file"], row["function"], row["text"]) in texts
    }


def _looked_at(path: Path) -> Row:
    """Which functions a test file calls, in its own and other processes, and how long it takes."""
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "coveragerc"
        config.write_text(
            f"[run]\nsource = {SOURCES}\nparallel = true\npatch = subprocess, fork, _exit\n"
            f"data_file = {scratch}/data\n"
        )
        began_s = time.monotonic()
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={config}", "-m", "pytest"]
        command += ["-q", "-n", "0", "-p", "no:cacheprovider", str(path)]
        passed = subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0
        took_s = time.monotonic() - began_s
        called: dict[str, set[str]] = {}
        for part in Path(scratch).glob("data*"):
            data = CoverageData(str(part))
            data.read()
            for file in map(Path, data.measured_files()):
                owners = _owners(file) if file.suffix == ".py" else {}
                names = {owners[line] for line in data.lines(str(file)) or () if line in owners}
                called.setdefault(file.relative_to(SOURCES).as_posix(), set()).update(names)
    return {
        "test": _name(path),
        "digest": _digest(path),
        "passed": passed,
        "seconds": round(took_s, 1),
        "functions": {file: sorted(names) for file, names in called.items() if names},
    }


@cache
def _owners(file: Path) -> Mapping[int, str]:
    """The innermost function that each line of code belongs to; its first line counts for what
    surrounds it."""
    owners: dict[int, str] = {}
    for name, owner in functions(ast.parse(file.read_text(encoding="utf-8"))):
        lines = range(owner.body[0].lineno, (owner.end_lineno or 0) + 1)
        owners |= dict.fromkeys(lines, name)
    return owners


def _open(verdict: Row, called: Sequence[Row]) -> bool:
    """Whether a change is to be judged anew: what saw it is gone, or what did not has changed."""
    if verdict["verdict"] == "seen":
        return all(row["test"] != _file_of(verdict["by"]) for row in called)
    return verdict["against"] != _state(_that_call(verdict["file"], verdict["function"], called))


def _file_of(test: str) -> str:
    return test.split("::")[0]


def _that_call(file: str, function: str, called: Sequence[Row]) -> list[Row]:
    """The tests that call a function; of one that none calls, those that call what it is written
    in, since TVM reads the functions of its language and never runs them."""
    found = [row for row in called if row["passed"] and function in row["functions"].get(file, ())]
    around = function.rpartition(".")[0]
    return _that_call(file, around, called) if not found and around else found


def _state(tests: Sequence[Row]) -> str:
    return hashlib.sha256("".join(row["digest"] for row in tests).encode()).hexdigest()[:16]


def _judged(mutant: Mutant, *, called: Sequence[Row], killers: Iterable[str]) -> Row:
    """Which test fails first, of the files that call the function: the room's own come first, of
    them those that saw another change, then by the time that they take."""
    room = f"/{mutant.file.split('/')[0]}/"
    tests = _that_call(mutant.file, mutant.function, called)
    asked = sorted(
        tests, key=lambda row: (room not in row["test"], row["test"] not in killers, row["seconds"])
    )
    failed = ""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        changed = copy / "tilewright" / mutant.file
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        for row in asked:
            limit_s = HANGS_AFTER_S + 10 * row["seconds"]
            found = _failing(row["test"], copy, limit_s)
            if found and not _failing(found, ROOT / "src", limit_s):
                failed = found
                break
    verdict = "seen" if failed else "survives" if asked else "never run"
    about = {"verdict": verdict, "by": failed, "asked": len(asked), "against": _state(tests)}
    return {"name": mutant.name, **asdict(mutant), **about}


def _failing(test: str, sources: Path, limit_s: float) -> str:
    """The first test that fails with these sources; a file that hangs counts as failed."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    with tempfile.TemporaryFile("w+") as output:
        try:
            code = subprocess.run(
                [*command, test],
                cwd=ROOT, env=environment, stdout=output, stderr=output, timeout=limit_s,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return test
        output.seek(0)
        lines = [text for text in output if text.startswith(("FAILED", "ERROR"))]
    return (lines[0].split(" ", 1)[1].split(" - ")[0].strip() if lines else test) if code else ""


def _report(rows: Sequence[Mapping[str, Any]]) -> int:
    seen: dict[str, list[bool]] = {}
    for row in rows:
        seen.setdefault(row["file"].split("/")[0], []).append(row["verdict"] == "seen")
    for room, found in sorted(seen.items()):
        print(f"{room:12}{sum(found):4} of {len(found)}")
    for row in rows:
        if row["verdict"] != "seen":
            print(f"{row['verdict']:11}{row['name']} (line {row['line']})")
    total = sum(row["verdict"] == "seen" for row in rows)
    print(f"{total} of {len(rows)} seen" + (f", {total / len(rows):.0%}" if rows else ""))
    return 0 if rows and total / len(rows) >= BAR else 1


def _done(name: str, rows: Iterable[Row], shown: str) -> None:
    """Keep rows as they come."""
    for row in rows:
        with (RESULTS / name).open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row.get('verdict', ''):9} {row[shown]} {row.get('by', '')}", flush=True)


def _rows(name: str) -> list[Row]:
    """The rows of a file; of the same test or change, the last one."""
    path = RESULTS / name
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return list({row.get("name", row.get("test")): row for row in rows}.values())


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())

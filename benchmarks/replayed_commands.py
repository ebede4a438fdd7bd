"""The same commands by this version and by another one: exit codes, answers, messages.

    python benchmarks/replayed_commands.py --other PYTHON [--only WORD…]

`PYTHON` is the interpreter of an environment in which the other version is installed. Each version
runs all commands in a folder and with a database of its own, on the simulated device where one is
needed. Numbers, hashes, times and paths are left out of the comparison, since two runs of one
version differ in them. Of JSON, every field that the other version gives must be there; more may.
Prints each command whose answers differ, and how. Ends with 1 when one does.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIMULATED = "--target simulated"
VERBS = (
    "optimize", "tune", "profile", "compare", "run", "serve", "show", "predict", "explain",
    "collect", "fit", "evaluate", "solve", "plan", "simulate", "study", "study tuners",
    "study subgraph", "study padding", "study cores", "doctor", "targets", "db", "db info",
    "db export", "db import", "db merge", "db gc",
)  # fmt: skip
COMMANDS = (
    "--version",
    *(f"{verb} --help" for verb in VERBS),
    f"optimize zoo:mlp {SIMULATED} --budget 24 --out made --format json",
    f"optimize zoo:mlp {SIMULATED} --budget 24 --out made",
    f"tune zoo:mlp {SIMULATED} --budget 12 --level op --tuner random --out op --format json",
    f"tune zoo:squeezenet1_1 {SIMULATED} --budget 8 --level graph --out graph --format json",
    f"profile zoo:mlp {SIMULATED} --format json",
    f"profile zoo:mlp {SIMULATED} --format csv",
    f"profile zoo:mlp {SIMULATED} --format md",
    f"compare zoo:mlp {SIMULATED} --format json",
    "serve made --load 1s --instances 1x1 --mode shared",
    "show zoo:mlp --graph",
    "show op:conv2d[c=16,h=8,out=16,k=3,pad=1]",
    "show made --format json",
    "predict zoo:mlp --format json",
    "predict zoo:mlp --format md",
    "predict op:softmax[shape=64x1000] --format csv",
    "explain op:dense[rows=1,in=64,out=64] --format json",
    "evaluate --family softmax --format json",
    "evaluate --family softmax --format csv",
    "study tuners --seeds 1 --tuners random --format csv",
    "plan zoo:mlp --target simulated --planner sequential --out planned --format json",
    "simulate planned --upper --format json",
    "plan zoo:mlp --target simulated --precision float16",
    "targets --format json",
    "db info --format json",
    "db export all.jsonl",
    "db export all.csv",
    "db import all.jsonl",
    "db gc --format json",
    "optimize nothing.onnx",
    "optimize zoo:nothing",
    "optimize zoo:mlp --budget soon",
    "optimize zoo:mlp --target sparc",
    "optimize zoo:mlp --tuner nobody",
    "profile zoo:mlp --settings finest",
    "profile zoo:mlp --power --meter nothing",
    "compare zoo:mlp --peers nobody",
    "run nowhere inputs.npz",
    "show nothing-0123456789abcdef",
    "predict op:conv2d[c=0]",
    "predict op:nothing[]",
    "evaluate --family nothing",
    "explain zoo:mlp --versus zoo:mlp",
    "solve nowhere.json",
    "plan nowhere.json",
    "simulate nowhere",
    "study padding op:relu[shape=4] --parameter q",
    "study cores op:relu[shape=4] --beside nobody",
    "tune op:relu[shape=4] --beside nobody",
    "db import nowhere.csv",
    "db merge nowhere.db elsewhere.db",
    "optimize zoo:mlp --budget 0 --max-error -1",
    "nothing",
    "optimize --nothing",
)


_OF_THE_MOMENT = r"N measured, .* best N|varied by N|Other work was running"
"""Lines that two runs of one version need not share: progress, and what the machine was doing."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run all, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other", required=True, help="interpreter with the other version")
    parser.add_argument("--only", nargs="*", default=(), help="commands that hold these words")
    given = parser.parse_args(argv)
    wanted = [c for c in COMMANDS if all(word in c for word in given.only)]
    apart = 0
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in ("other", "this")}
        for folder in folders.values():
            folder.mkdir()
        for command in wanted:
            before = ended(given.other, command, folders["other"])
            now = ended(sys.executable, command, folders["this"])
            found = list(differences(before, now))
            apart += bool(found)
            print(f"{'differs' if found else 'same':8}{command}", flush=True)
            for line in found:
                print(f"        {line}")
    print(f"{len(wanted) - apart} of {len(wanted)} commands answer the same")
    return 1 if apart else 0


def ended(python: str, command: str, folder: Path) -> Ended:
    """A command in a folder, with a database, a cache and a width of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {
        **kept,
        "TILEWRIGHT_DB": str(folder / "a.db"),
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    found = subprocess.run(
        [python, "-m", "tilewright", *command.split()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ended(found.returncode, found.stdout, found.stderr)


def differences(before: Ended, now: Ended) -> Iterator[str]:
    """What is not as it was, line by line; the first few."""
    if before.code != now.code:
        yield f"exit code {before.code}, now {now.code}"
    told = [answer(ended.stdout) for ended in (before, now)]
    if all(isinstance(one, dict) for one in told):
        yield from (f"no field {name}" for name in sorted(names(told[0]) - names(told[1])))
    else:
        yield from _lines(before.stdout, now.stdout)
    yield from _lines(before.stderr, now.stderr)


def answer(text: str) -> Any:
    """What a command printed as JSON; the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def names(value: Any, before: str = "") -> set[str]:
    """The paths of all fields; those of a list are those of its items."""
    if isinstance(value, list):
        return {name for item in value for name in names(item, f"{before}[]")}
    if isinstance(value, dict):
        inner = {name for key, item in value.items() for name in names(item, f"{before}.{key}")}
        return inner | {f"{before}.{key}" for key in value}
    return set()


def _lines(before: str, now: str) -> Iterator[str]:
    apart = difflib.unified_diff(plain(before), plain(now), lineterm="", n=0)
    yield from [line[:200] for line in apart if line[:3] not in ("---", "+++")][:8]


def plain(text: str) -> list[str]:
    """Lines without what two runs of one version differ in."""
    text = re.sub(r"(?:/[\w.@+-]+){2,}", "PATH", text)
    text = re.sub(r"\b[0-9a-f]{10,}\b", "HASH", text)
    text = re.sub(
        r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?\s?(?:ns|µs|ms|s|%|[KMG]?i?B)?(?!\w)", "N", text
    )
    lines = [re.sub(r"[ ─━]+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if not re.search(_OF_THE_MOMENT, line)]


if __name__ == "__main__":
    sys.exit(main())

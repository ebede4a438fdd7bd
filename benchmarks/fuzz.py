"""Hostile models, artifacts, databases and command lines: nothing may end in our own fault.

    python benchmarks/fuzz.py [--kind models] [--count N] [--seed N] [--minutes 15] [--out FILE]
    python benchmarks/fuzz.py --replay models:17 [--cold] [--keep FOLDER]

Each case follows from its kind and seed. Results are kept case by case; the same command goes on
where it stopped. Ends with 1 when a case is bad. What is changed, and what counts as bad:
docs/fuzzing.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from fuzzing.ground import prepare
from fuzzing.journal import Journal
from fuzzing.running import COUNTS, KINDS, Runner
from fuzzing.warm import preload

RESULTS = Path(__file__).parent / "results" / "fuzz.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases until all are done or the time is up."""
    given = _parsed(argv)
    preload()
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as scratch:
        runner = Runner(ground=prepare(given.ground or Path(scratch)))
        if given.replay:
            return _replay(runner, given)
        journal = Journal(given.out)
        finished = _work(runner, journal, given)
    print(journal.summary())
    print("\nall cases are done" if finished else "\nto go on: the same command again")
    return 1 if journal.bad else 0


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument(
        "--count", type=int, help="cases of each kind [default: " + str(COUNTS) + "]"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--minutes", type=float, default=15.0, help="after which no case begins")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument(
        "--ground", type=Path, help="where the good things are, or are made [default: made anew]"
    )
    parser.add_argument("--replay", metavar="KIND:SEED", help="run one case alone and show it")
    parser.add_argument("--cold", action="store_true", help="replay in processes of their own")
    parser.add_argument("--keep", type=Path, help="replay: leave the case's folder there")
    given = parser.parse_args(argv)
    if given.replay is not None:
        kind, _, seed = given.replay.partition(":")
        if kind not in KINDS or not seed.isdecimal():
            parser.error(f"--replay takes KIND:SEED, KIND one of {', '.join(KINDS)}")
    return given


def _replay(runner: Runner, given: argparse.Namespace) -> int:
    kind, _, seed = given.replay.partition(":")
    row = runner.once(kind, int(seed), warm=not given.cold, keep=given.keep)
    print(json.dumps(asdict(row), indent=1, ensure_ascii=False))
    return 1 if row.faults else 0


def _work(runner: Runner, journal: Journal, given: argparse.Namespace) -> bool:
    """Whether all cases are done now."""
    end_s = time.monotonic() + 60 * given.minutes
    for kind, seed in _cases(given):
        if (kind, seed) in journal.rows:
            continue
        if time.monotonic() > end_s:
            return False
        row = runner.row(kind, seed)
        journal.add(row)
        for fault in row.faults:
            print(f"{kind}:{seed} {fault.group}", file=sys.stderr, flush=True)
    return True


def _cases(given: argparse.Namespace) -> Iterator[tuple[str, int]]:
    kinds = tuple(KINDS) if given.kind == "all" else (given.kind,)
    for kind in kinds:
        count = COUNTS[kind] if given.count is None else given.count
        for seed in range(given.seed, given.seed + count):
            yield kind, seed


if __name__ == "__main__":
    sys.exit(main())

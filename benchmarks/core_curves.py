"""Times of kernels on 1, 2, 4 … cores of a machine that is only lent, and has no compiler.

    python benchmarks/core_curves.py prepare --cores 1 2 3 4 6 8 12 16 --file FOLDER --runtime
    python benchmarks/core_curves.py run --file FOLDER --out results.jsonl --seconds 200
    python benchmarks/core_curves.py report results.jsonl
    python benchmarks/core_curves.py judge results.jsonl…
    python benchmarks/core_curves.py fit results.jsonl…

`prepare` compiles, here, the default kernels of tasks of the zoo's networks and of operators drawn
at random, for each number of cores; `--runtime` puts TVM without its compiler beside them. `run`
times each on as many cores as it is made for, then those made for one core and for all on the other
numbers, on a machine of the same kind. That needs this checkout, Python 3.11 or newer with numpy,
psutil, msgspec, platformdirs, ml_dtypes and apache-tvm-ffi, and FOLDER/runtime on PYTHONPATH where
there is no TVM. It also measures what a copy takes on each number of cores, how long a hand-over
between cores is, and how much kernels on one half of the cores slow those on the other half down.
A command that is repeated goes on where it stopped, and then measures everything once more. `judge`
and `fit` take results of several machines: `fit` writes the curves that come with the package.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from card.archive import lines
from curves.archive import COPY, DISTANCE, RUNTIME, Archive, CurveTask, library_of
from curves.measuring import Measuring
from tilewright.core.codec import to_builtins
from tilewright.core.processes import Child
from tilewright.hardware.device import local_placement
from tilewright.hardware.environment import environment_card, read_environment
from tilewright.measure.circumstances import kernel_protocol

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
MOST_TASKS, OPERATORS, PAIRS, TURNS = 24, 90, 24, 3
_MOST_S, _RESERVE_S = 200.0, 2.0
_SAMPLES, _SAMPLE_S = 7, 0.002
_COPIED_BYTES = (32 << 20, 256 << 20)


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    given = _parser().parse_args(arguments)
    if given.command == "prepare":
        prepare(given)
    elif given.command == "run":
        run(given)
    elif given.command == "report":
        from curves.reporting import report

        print("\n".join(report(list(lines(given.results)))))
    else:
        from curves.fitting import fit, judged

        if given.command == "fit":
            fit(given.results)
        else:
            print("\n".join(judged(given.results)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("prepare")
    made.add_argument("networks", nargs="*")
    made.add_argument("--cores", nargs="+", type=int, default=list(COUNTS))
    made.add_argument("--file", type=Path, required=True, help="a folder")
    made.add_argument("--most", type=int, default=MOST_TASKS, help="tasks of each network")
    made.add_argument("--operators", type=int, default=OPERATORS, help="drawn at random")
    made.add_argument("--runtime", action="store_true", help="bring TVM without its compiler")
    ran = commands.add_parser("run")
    ran.add_argument("--file", type=Path, required=True)
    ran.add_argument("--out", type=Path, required=True)
    ran.add_argument("--cores", nargs="+", type=int, help="some of those that were prepared")
    ran.add_argument("--seconds", type=float, default=_MOST_S)
    ran.add_argument("--turns", type=int, default=TURNS, help="times of everything")
    ran.add_argument("--pairs", type=int, default=PAIRS, help="kernels beside each other")
    ran.add_argument("--copied", nargs="*", type=int, default=_COPIED_BYTES, help="bytes")
    told = commands.add_parser("report")
    told.add_argument("results", type=Path)
    for name in ("judge", "fit"):
        learnt = commands.add_parser(name)
        learnt.add_argument("results", type=Path, nargs="+")
    return parser


# ------------------------------------------------------------------------------ with the compiler


def prepare(given: argparse.Namespace) -> None:
    """Compile everything into the folder."""
    from curves.building import add_copy, add_runtime, built
    from curves.wishes import NETWORKS, wishes

    folder, placement = given.file, local_placement()
    folder.mkdir(parents=True, exist_ok=True)
    asked = wishes(
        placement, given.cores, given.networks or NETWORKS, (given.most, given.operators)
    )
    tasks: list[CurveTask] = []
    for wish in asked:
        path = library_of(folder, len(tasks))
        task = built(wish, placement, path)
        _tell(f"{len(tasks) + 1} of {len(asked)} {wish.source} {wish.workload.key}")
        if task is not None:
            tasks.append(task)
    features, counts = placement.target.features, tuple(sorted(given.cores))
    Archive(features=features, counts=counts, tasks=tuple(tasks)).write(folder)
    add_copy(folder / COPY, placement)
    _add_distance(folder / DISTANCE)
    if given.runtime:
        add_runtime(folder / RUNTIME)
    size = sum(path.stat().st_size for path in folder.rglob("*"))
    kernels = sum(len(task.kernels) for task in tasks)
    _tell(f"{folder}: {len(tasks)} tasks, {kernels} kernels, {size / 2**20:.1f} MiB")


def _add_distance(program: Path) -> None:
    source = Path(__file__).with_name("core_distance.c")
    command = ["cc", "-O2", "-pthread", "-static", str(source), "-o", str(program)]
    subprocess.run(command, check=True)  # noqa: S603 - a source of our own


# ------------------------------------------------------------------------------ with many cores


def run(given: argparse.Namespace) -> None:
    """Measure, the most important first, until time is up."""
    archive, placement = Archive.read(given.file), local_placement()
    cpus = placement.binding.cpus
    counts = [cores for cores in given.cores or archive.counts if cores <= len(cpus)]
    unknown = sorted({*counts} - {*archive.counts})
    if unknown or not counts:
        sys.exit(
            f"{given.file} has kernels for {', '.join(map(str, archive.counts))} cores, this "
            f"machine {len(cpus)}: nothing is there for {', '.join(map(str, unknown)) or 'it'}"
        )
    usual = kernel_protocol(placement)
    with ExitStack() as stack:
        measuring = Measuring(
            folder=given.file.resolve(),
            out=given.out,
            archive=archive,
            cpus=cpus,
            protocol=replace(usual, repeats=_SAMPLES, sample_s=_SAMPLE_S),
            deadline_s=time.monotonic() + given.seconds - _RESERVE_S,
            children={
                cores: stack.enter_context(Child("curves.worker", cpus=cpus[:cores]))
                for cores in counts
            },
        )
        _describe(measuring)
        measuring.checks()
        measuring.hand_overs()
        measuring.copies(given.copied)
        measuring.times(archive.own(counts), turn=0)
        if max(counts) // 2 in counts:
            measuring.pairs(given.pairs)
        powers = [cores for cores in counts if cores & (cores - 1) == 0]
        measuring.times(archive.foreign(powers), turn=0)
        for turn in range(1, given.turns):
            measuring.times(archive.own(counts), turn)
            measuring.times(archive.foreign(counts), turn=turn - 1)
        _tell(f"{given.out}: {measuring.told}")


def _describe(measuring: Measuring) -> None:
    """What the machine is and what is measured on it, in the results, so that they need no other
    file."""
    placement, archive = local_placement(), measuring.archive
    missing = sorted({*archive.features} - {*placement.target.features})
    if missing:
        _tell(f"this machine lacks {', '.join(missing)}; kernels that need it will crash")
    target = placement.target
    about = {
        "model": target.model,
        "cpus": measuring.cpus,
        "cache_bytes": [level.bytes for level in target.memory],
        "missing": missing,
        "environment": environment_card(read_environment(), placement),
        "protocol": to_builtins(measuring.protocol),
    }
    measuring.once(f"machine {time.time()}", {"part": "machine"}, lambda: about)
    for number, task in enumerate(archive.tasks):
        line = {"part": "task", "task": number, **to_builtins(task)}
        measuring.once(f"task {number}", line, dict)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

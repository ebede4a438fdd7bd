"""The default candidate of every task of the zoo and the hash of its kernel, now and as recorded.

    python benchmarks/default_kernels.py [--jobs N]                             compare
    python benchmarks/default_kernels.py --only avx2/1/mlp --anchor dense       compare a few
    python benchmarks/default_kernels.py --record [--jobs N]                    write anew

For what must not change a kernel, a change of types or a move of files, say. The networks are cut
into tasks for made-up processors with AVX-512, AVX2 and NEON and for one and two threads; each task
gets its default candidate, which is lowered, not compiled. Nothing is timed, so any machine gives
the same lines. `--only` takes a regular expression of `TARGET/THREADS/NETWORK`, `--anchor` the
anchor of the tasks that are compared. What differs is told as soon as its network is done. Ends
with 1 when a task, a candidate or a kernel differs from benchmarks/oracle/default-kernels.tsv.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from tilewright.core.codec import canonical_json
from tilewright.core.forms import form_texts
from tilewright.core.records import Candidate, Device, Placement
from tilewright.core.targets import threads_alone
from tilewright.hardware.features import X86_V3, X86_V4, cpu_target
from tilewright.kernels.spaces import default_candidate
from tilewright.models import ModelOptions
from tilewright.models.zoo import names
from tilewright.plan.preparation import prepare

RECORDED = Path(__file__).parent / "oracle" / "default-kernels.tsv"
MAX_ERROR = 1e-4
"""What `optimize` allows by itself."""
SHOWN = 20

Case = tuple[str, int, str]
"""A processor, a number of threads and a network."""

Lines = Mapping[str, str]
"""`TARGET/THREADS/NETWORK`, task and layouts, and for each the candidate and the kernel's hash."""

_AVX512 = ["+avx512bw", "+avx512cd", "+avx512dq", "+avx512f", "+avx512vl", "+avx512vnni"]
PROCESSORS: Mapping[str, tuple[int, int, dict[str, object]]] = {
    "avx512": (64, 32, {"mcpu": "x86-64-v4", "mattr": ["-prefer-256-bit", *_AVX512]}),
    "avx2": (32, 16, {"mcpu": "x86-64-v3", "mattr": []}),
    "neon": (16, 32, {"mtriple": "aarch64-linux-gnu", "mcpu": "generic", "mattr": ["+neon"]}),
}
"""By name: bytes of a vector register, how many there are, and what TVM's target says."""


def placement(processor: str, threads: int) -> Placement:
    """A processor that no probe has seen, so that it is the same on every machine."""
    vector_bytes, registers, described = PROCESSORS[processor]
    arm = processor == "neon"
    x86 = (*X86_V4, "avx512vnni") if processor == "avx512" else X86_V3
    target = cpu_target(
        model=f"made-up {processor}",
        architecture="aarch64" if arm else "x86_64",
        features=("neon",) if arm else x86,
        cache_bytes=(32 << 10, 1 << 20, 32 << 20),
        cores=2,
        tvm=canonical_json({"kind": "llvm", **described}),
    )
    assert (target.vector_bytes, target.vector_registers) == (vector_bytes, registers)
    device = Device(class_key=f"oracle-{processor}", instance="", target=target, access="described")
    return Placement(device=device, resources=threads_alone(threads))


def lines_of(case: Case, anchor: str = "") -> dict[str, str]:
    """All tasks of a network on a processor, or those with an anchor."""
    from tilewright.compiler.build import kernel_identity

    processor, threads, network = case
    on = placement(processor, threads)
    found: dict[str, str] = {}
    for task in prepare(f"zoo:{network}", ModelOptions(), on).tasks.values():
        if anchor not in ("", task.workload.anchor_name):
            continue
        candidate, _ = default_candidate(task.workload, task.forms, on, MAX_ERROR)
        kernel = kernel_identity(task.workload, candidate, on.target, on.resources)
        name = f"{processor}/{threads}/{network}\t{task.key[0]}\t{','.join(form_texts(task.forms))}"
        found[name] = f"{_text(candidate)}\t{kernel}"
    return found


def _text(candidate: Candidate) -> str:
    settings = " ".join(f"{name}={value}" for name, value in candidate.settings)
    return f"{candidate.implementation}[{settings}]"


def differences(recorded: Lines, now: Lines) -> list[str]:
    """What differs, one sentence each: tasks that went, tasks that came, candidates, kernels."""
    found = [f"went: {name}" for name in recorded if name not in now]
    for name, value in now.items():
        before = recorded.get(name)
        if before is None:
            found.append(f"came: {name}")
        elif before != value:
            found.append(f"differs: {name}\n  before {before}\n  now    {value}")
    return found


def read(path: Path, pattern: str = "", anchor: str = "") -> dict[str, str]:
    """The recorded lines of the cases that a pattern names, or of their tasks with an anchor."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {
        "\t".join(row[:3]): "\t".join(row[3:])
        for row in rows
        if re.search(pattern, row[0]) and anchor in ("", row[1].rpartition("-")[0])
    }


def write(path: Path, lines: Lines) -> None:
    """Write all lines, sorted."""
    path.parent.mkdir(exist_ok=True)
    text = "".join(f"{name}\t{value}\n" for name, value in sorted(lines.items()))
    path.write_text(text, encoding="utf-8")


def cases(pattern: str = "") -> list[Case]:
    """All combinations whose `TARGET/THREADS/NETWORK` a pattern is found in."""
    every = product(PROCESSORS, (1, 2), names())
    return [case for case in every if re.search(pattern, "/".join(map(str, case)))]


def collected(
    wanted: Sequence[Case], jobs: int, anchor: str = ""
) -> Iterator[tuple[str, dict[str, str]]]:
    """Each case and its lines, as they come; in a process each, since TVM keeps what it lowered."""
    with get_context("spawn").Pool(jobs, maxtasksperchild=4) as pool:
        found = pool.imap(partial(lines_of, anchor=anchor), wanted)
        for case, lines in zip(wanted, found, strict=True):
            name = "/".join(map(str, case))
            print(name, len(lines), file=sys.stderr, flush=True)
            yield name, lines


def main(argv: Sequence[str] | None = None) -> int:
    """Record, or compare and say what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="write the file anew")
    parser.add_argument("--only", default="", metavar="PATTERN", help="compare these cases only")
    parser.add_argument("--anchor", default="", help="compare tasks with this anchor only")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    given = parser.parse_args(argv)
    if given.record and (given.only or given.anchor):
        parser.error("--record writes all cases; leave --only and --anchor away")
    wanted = cases(given.only)
    if not wanted:
        parser.error(f"--only {given.only!r} names no case")
    recorded = read(RECORDED, given.only, given.anchor)
    if given.anchor and not recorded:
        parser.error(f"--anchor {given.anchor!r} names no recorded task")
    found = collected(wanted, given.jobs, given.anchor)
    if given.record:
        now = {name: line for _, lines in found for name, line in lines.items()}
        write(RECORDED, now)
        print(f"{len(now)} tasks recorded")
        return 0
    return compared(recorded, found)


def compared(recorded: Lines, found: Iterator[tuple[str, Lines]]) -> int:
    """Tell the differences of each case as it comes, and then how many there are."""
    tasks = count = 0
    for case, lines in found:
        before = {name: line for name, line in recorded.items() if name.split("\t")[0] == case}
        differing = differences(before, lines)
        for text in differing[: max(0, SHOWN - count)]:
            print(text, flush=True)
        tasks, count = tasks + len(lines), count + len(differing)
    if count > SHOWN:
        print(f"and {count - SHOWN} more")
    print(f"{tasks} tasks, {count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())

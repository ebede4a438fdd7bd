"""What can only be measured on a GPU of NVIDIA's, in parts of at most nine minutes.

    python benchmarks/on_a_card.py prepare --file kernels.jsonl          # here; no GPU is needed
    python benchmarks/on_a_card.py run checks --file kernels.jsonl --out results.jsonl
    python benchmarks/on_a_card.py run defaults --file kernels.jsonl --out results.jsonl
    python benchmarks/on_a_card.py report results.jsonl
    python benchmarks/on_a_card.py store results.jsonl --db card.db

`prepare` lowers and compiles kernels into one file, `run` measures a part of them on the machine
with the GPU, `report` and `store` read what came back. A command that is repeated goes on where it
stopped. The machine with the GPU needs this checkout, Python 3.11 or newer with numpy, psutil,
msgspec, platformdirs and cuda-bindings, for `power` nvidia-ml-py, and for rivals PyTorch; neither
TVM nor a compiler. Where it has nvcc and this one is slow, `prepare --texts` leaves compiling to
`compile` there.

Parts: `checks` (every implementation against numpy), `defaults` (default settings against TVM's
own schedules, cuDNN and cuBLAS), `tuning` (the candidates that are expected to be fastest), `study`
(seed 000's convolution along padding and height), `codes` (products of codes against the same of
singles), `rows` and `power` (random configurations for
predictors). `--on simulated` executes kernels on the CPU: a trial of the whole way, whose times
mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from card.archive import MOST_BYTES, SIMULATED, Archive, Prepared, Wanted, key_of, lines
from pages import PAGE_OF_CARDS as PAGE
from pages import marks, replace_between
from tilewright.compiler.cuda import nvidia
from tilewright.compiler.cuda.compilers import Compiled, compiled_source
from tilewright.core.codec import convert, digest, to_builtins
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.cards import Card, broken_limit
from tilewright.hardware.gpus import gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.measure.accesses.cuda import placement_on
from tilewright.measure.circumstances import kernel_protocol
from tilewright.testing.simulated_driver import H100

PREPARED = ("checks", "defaults", "tuning", "study", "codes", "rows")
PARTS = (*PREPARED, "power")
MODEL = "H200"
_MOST_S, _KERNEL_S, _RESERVE_S = 540.0, 120.0, 20.0
_POWER_WINDOW_S = 0.7


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    given = _parser().parse_args(arguments)
    if given.command == "prepare":
        prepare(given)
    elif given.command == "compile":
        compile_texts(Archive(given.file), given.jobs, given.seconds)
    elif given.command == "run":
        run(given)
    elif given.command == "report":
        from card.reporting import report

        text = "\n".join(report(list(lines(given.results))))
        print(text)
        if given.page:
            replace_between(PAGE, marks("kernels"), text)
    else:
        from card.reporting import store

        print(f"{store(given.results, given.db)} measurements stored")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("prepare")
    made.add_argument("parts", nargs="*", choices=[*PREPARED, []])
    made.add_argument("--file", type=Path, required=True)
    made.add_argument("--model", default=MODEL)
    made.add_argument("--most", type=int, default=sys.maxsize, help="kernels of each part")
    made.add_argument("--texts", action="store_true", help="compile nothing")
    compiled = commands.add_parser("compile")
    compiled.add_argument("--file", type=Path, required=True)
    compiled.add_argument("--jobs", type=int, default=16)
    compiled.add_argument("--seconds", type=float, default=_MOST_S)
    ran = commands.add_parser("run")
    ran.add_argument("part", choices=PARTS)
    ran.add_argument("--file", type=Path, required=True)
    ran.add_argument("--out", type=Path, required=True)
    ran.add_argument("--on", default="cuda", choices=["cuda", SIMULATED])
    ran.add_argument("--seconds", type=float, default=_MOST_S)
    ran.add_argument("--jobs", type=int, default=1, help="kernels checked at a time")
    told = commands.add_parser("report")
    told.add_argument("results", type=Path)
    told.add_argument("--page", action="store_true", help="write the tables to the page")
    stored = commands.add_parser("store")
    stored.add_argument("results", type=Path)
    stored.add_argument("--db", required=True)
    return parser


# ---------------------------------------------------------------------------------- without a card


def prepare(given: argparse.Namespace) -> None:
    """Add to the file what is wanted and not in it yet."""
    from card.wishes import wishes
    from tilewright.measure.targeting import placement_of

    archive = Archive(given.file)
    placement = placement_of(f"cuda -model={given.model}", None, None)
    for part in given.parts or PREPARED:
        for count, (labels, workload, candidate) in enumerate(wishes(part, placement)):
            if count >= given.most:
                break
            key = key_of(workload, candidate, placement.target.architecture)
            wanted = Wanted(part=part, key=key, labels=labels)
            if wanted.name in archive.wanted:
                continue
            failure = ""
            if key not in archive:
                failure = _made(archive, key, (workload, candidate), placement, texts=given.texts)
            archive.want(replace(wanted, failure=failure))
            _tell(f"{part}: {count + 1} {candidate.implementation} {failure}")
    size = given.file.stat().st_size
    _tell(f"{given.file}: {size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        _tell(f"that is more than {MOST_BYTES >> 20} MiB: leave out parts, or give --most")


def _made(
    archive: Archive,
    key: str,
    kernel: tuple[Workload, Candidate],
    placement: Placement,
    *,
    texts: bool,
) -> str:
    """Make a kernel and add it; why that failed, else nothing."""
    from tilewright.compiler.builders.base import FAULTS
    from tilewright.compiler.builders.cuda import CudaBuilder

    builder = CudaBuilder(compile=_left_for_later) if texts else CudaBuilder()
    try:
        built = builder.build(*kernel, placement.target, placement.resources)
    except FAULTS as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    archive.add(
        Prepared(
            key=key,
            model=placement.target.model,
            workload=built.workload.text,
            candidate=built.candidate,
            source=built.program.source,
            launches=built.program.launches,
            workspaces=built.program.workspaces,
            types=built.types,
            kernel_hash=built.kernel_hash,
            build_s=built.build_s,
            binary=b"" if texts else built.binary,
        )
    )
    return ""


def _left_for_later(_source: str, _arch: str, _form: str) -> Compiled:
    return Compiled(binary=b"later")


def compile_texts(archive: Archive, jobs: int, seconds: float) -> None:
    """Make cubins of kernels that are only text, several at a time."""
    deadline_s = time.monotonic() + seconds

    def compiled(kernel: Prepared) -> tuple[Prepared, Compiled | None]:
        late = time.monotonic() > deadline_s
        return kernel, None if late else compiled_source(kernel.source, kernel.arch)

    left = list(archive.without_binary())
    with ThreadPoolExecutor(jobs) as pool:
        for kernel, made in pool.map(compiled, left):
            if made is None:
                continue
            limits = gpu_target(parse_gpu(f"cuda -model={kernel.model}")).limits
            reports = ((launch, made.reports.get(launch.kernel)) for launch in kernel.launches)
            broken = filter(None, (broken_limit(it, limits, report) for it, report in reports))
            refused = made.reason or next(broken, "")
            if refused:
                _tell(f"{kernel.key}: {refused}")
            else:
                archive.add_binary(kernel.key, made.binary)
    _tell(f"{len(left) - len(list(archive.without_binary()))} of {len(left)} texts compiled")


# -------------------------------------------------------------------------------------- on the card


def run(given: argparse.Namespace) -> None:
    """Measure what a part wants and the results do not have yet. Only checks, which nobody times,
    run side by side."""
    archive = Archive(given.file)
    wanted = list(archive.wanted.values()) if given.part == "power" else archive.of(given.part)
    results = list(lines(given.out)) if given.out.exists() else []
    done = {(line["part"], line.get("name")) for line in results}
    left = [it for it in wanted if (given.part, it.name) not in done and not it.failure]
    deadline_s = time.monotonic() + given.seconds - _RESERVE_S
    jobs = given.jobs if given.part == "checks" else 1
    with ExitStack() as stack:
        workers = [stack.enter_context(Child("card.worker")) for _ in range(jobs)]
        rival = stack.enter_context(Child("card.torch_worker"))
        there = [worker.request(("card", given.on), _KERNEL_S) for worker in workers][0]
        if given.on != SIMULATED:
            require_cubins(archive, wanted, convert(there, Card).arch)
        state = workers[0].request(("state", given.on), _KERNEL_S)
        begun = {"part": "card", "card": there, "on": given.on, "at": time.time()}
        _write(given.out, begun | {"state": state})
        queue = iter(left)

        def measure(worker: Child) -> int:
            count = 0
            while time.monotonic() < deadline_s and (each := next(queue, None)) is not None:
                kernel = archive.kernel(each.key)
                line = {"part": given.part, "name": each.name, "key": each.key}
                line |= {**_described(kernel), "labels": dict(each.labels)}
                _write(given.out, line | _asked(worker, _request(given.part, kernel, given.on)))
                if given.part == "defaults" and given.on != SIMULATED and find_spec("torch"):
                    _rival(given.out, rival, kernel, done)
                count += 1
            return count

        with ThreadPoolExecutor(jobs) as pool:
            count = sum(pool.map(measure, workers))
        others = "" if count == len(left) else "; repeat the command for the others"
        _tell(f"{given.part}: {count} of {len(left)}{others}")
        state = workers[0].request(("state", given.on), _KERNEL_S)
        _write(given.out, {"part": "state", "state": state})


def require_cubins(archive: Archive, wanted: Sequence[Wanted], arch: str) -> None:
    """End where the file's kernels are not compiled, or for another GPU."""
    kernels = [archive.kernel(each.key) for each in wanted if not each.failure]
    others = sorted({kernel.arch for kernel in kernels} - {arch})
    if others:
        sys.exit(f"the card is {arch}, and kernels are for {', '.join(others)}: prepare --model")
    if not all(kernel.binary for kernel in kernels):
        sys.exit("some kernels are only text: `on_a_card.py compile` makes cubins of them")


def _request(part: str, kernel: Prepared, on: str) -> tuple[Any, ...]:
    protocol = kernel_protocol(placement_on(H100) if on == SIMULATED else _here())
    if part == "checks":
        return ("check", kernel, on)
    if part == "power":
        return ("power", kernel, on, protocol, _POWER_WINDOW_S)
    return ("time", kernel, on, protocol)


def _rival(out: Path, rival: Child, kernel: Prepared, done: set[tuple[str, Any]]) -> None:
    """PyTorch on the same workload, in the same run, once."""
    name = digest(kernel.workload)
    if ("torch", name) not in done:
        done.add(("torch", name))
        found = _asked(rival, ("time", kernel.workload, kernel_protocol(_here())))
        _write(out, {"part": "torch", "name": name, "task": kernel.task.key, **found})


@cache
def _here() -> Placement:
    """The first card of this machine."""
    return placement_on(nvidia.find_cards()[0])


def _asked(child: Child, request: tuple[Any, ...]) -> dict[str, Any]:
    """What a child answers; a failure as one."""
    began_s = time.monotonic()
    try:
        found = child.request(request, _KERNEL_S)
    except (ChildError, RemoteError) as error:
        found = {"failure": type(error).__name__, "message": str(error)[:500]}
    return {**found, "wall_s": time.monotonic() - began_s}


def _described(kernel: Prepared) -> dict[str, Any]:
    return {
        "task": kernel.task.key,
        "workload": kernel.workload,
        "candidate": to_builtins(kernel.candidate),
        "kernel_hash": kernel.kernel_hash,
        "build_s": kernel.build_s,
    }


_WRITING = Lock()


def _write(path: Path, line: dict[str, Any]) -> None:
    with _WRITING, path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

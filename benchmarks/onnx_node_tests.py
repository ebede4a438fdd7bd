"""ONNX's own node tests through our importer and compiler: right, refused, wrong, or our fault.

    python benchmarks/onnx_node_tests.py [--only PATTERN] [--jobs N] [--sample N [--seed N]]
                                         [--out FILE] [--again] [--page]

The `onnx` package brings a small model for nearly every form of every operator, with inputs and
the outputs that they must give. Every model is loaded, compiled with default settings and run; then
once more with all inputs but the first as constants, for shapes that come in as inputs are refused;
then the `light` networks of the same package. *Refused* is an error of the model that names what is
not supported. An *internal error* is any other exception, a crash, and no answer in time.

Results are appended to FILE, one JSON object per line; the same command goes on where it stopped,
and with `--again` repeats what was wrong or an internal error. Ends with 1 when there is any.

With `--page` ONNX Runtime is given the tests, too, and docs/reference/onnx-coverage.md says which
of those that it passes are right here, and why the rest is refused.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

from onnx_node_page import ENGINE, REFUSED, RIGHT, write_page
from tilewright.core.processes import Child, ChildError, RemoteError

WRONG, INTERNAL = "wrong", "internal error"
VERDICTS = (RIGHT, REFUSED, WRONG, INTERNAL)
FAULTS = (WRONG, INTERNAL)
WORKER = "onnx_node_worker"
OUT = Path(__file__).parent / "results" / "onnx_node_tests.jsonl"
START_S, TIMEOUT_S = 120.0, 120.0
MEMORY_BYTES = 8 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a test; `detail` is empty where it is right and nothing of it was computed by
    ONNX Runtime."""

    id: str
    verdict: str
    detail: str
    seconds: float


def child() -> Child:
    """A worker; the models are tiny, and what wants more memory than this is a fault."""
    return Child(WORKER, memory_limit_bytes=MEMORY_BYTES)


def every_name() -> list[str]:
    """The names of all tests."""
    with child() as worker:
        return worker.request(("names",), START_S)


def every_fact() -> dict[str, tuple[str, str]]:
    """Of every test of a node as it is: the operator, and why it does not count, if so."""
    with child() as worker:
        return {name: tuple(fact) for name, fact in worker.request(("about",), START_S).items()}


def judged(worker: Child, name: str) -> Result:
    """Put one test through a worker, which is new for the next one if it dies."""
    began = perf_counter()
    if worker.pid is None:
        worker.request(("names",), START_S)
    try:
        verdict, detail = worker.request(("judge", name), TIMEOUT_S)
    except RemoteError as error:
        last = [
            line.strip() for line in error.trace.splitlines() if line.strip().startswith("File")
        ]
        verdict, detail = INTERNAL, "\n".join((str(error)[:2000], *last[-3:]))
    except ChildError as error:
        verdict, detail = INTERNAL, str(error)[-2000:]
    return Result(id=name, verdict=verdict, detail=detail, seconds=perf_counter() - began)


def run(names: Sequence[str], jobs: int = 1) -> Iterator[Result]:
    """Results as they come, from so many workers side by side."""
    free: SimpleQueue[Child] = SimpleQueue()

    def one(name: str) -> Result:
        worker = free.get()
        try:
            return judged(worker, name)
        finally:
            free.put(worker)

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as threads:
        for _ in range(jobs):
            free.put(stack.enter_context(child()))
        try:
            for done in as_completed([threads.submit(one, name) for name in names]):
                yield done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


class Results:
    """What a file holds, one JSON object per line; the last one of a test counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[str, Result] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                result = _read(line)
                if result is not None:
                    self.known[result.id] = result
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, result: Result) -> None:
        """Keep a result at once."""
        self.known[result.id] = result
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def _read(line: str) -> Result | None:
    """A result, None for a line that was cut short."""
    try:
        return Result(**json.loads(line))
    except (ValueError, TypeError):
        return None


def chosen(every: Sequence[str], only: str, sample: int | None, seed: int) -> list[str]:
    """The names that match, and of those so many drawn by chance."""
    names = [name for name in every if re.search(only, name)]
    if sample is None or sample >= len(names):
        return names
    return sorted(random.Random(seed).sample(names, sample))


def summary(results: Sequence[Result]) -> str:
    """How many of each verdict, and every fault."""
    count = Counter(result.verdict for result in results)
    lines = [f"{result.verdict}: {result.id}: {result.detail}" for result in results
             if result.verdict in FAULTS]  # fmt: skip
    lines.append(", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS))
    return "\n".join(lines)


def main() -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression that names must contain")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--again", action="store_true", help="repeat what was at fault")
    parser.add_argument("--page", action="store_true", help="write the page of the documentation")
    options = parser.parse_args()
    results = Results(options.out)
    names = chosen(every_name(), options.only, options.sample, options.seed)
    facts = every_fact() if options.page else {}
    repeated = FAULTS if options.again else ()
    waiting = [
        name
        for name in (*names, *(ENGINE + name for name in names if name in facts))
        if name not in results.known or results.known[name].verdict in repeated
    ]
    for count, result in enumerate(run(waiting, options.jobs), 1):
        results.add(result)
        if (result.verdict in FAULTS and result.id in names) or count % 100 == 0:
            print(f"{count}/{len(waiting)} {result.id}: {result.verdict}", file=sys.stderr)
    found = [results.known[name] for name in names]
    if options.page:
        write_page({name: (r.verdict, r.detail) for name, r in results.known.items()}, facts)
    print(summary(found))
    return int(any(result.verdict in FAULTS for result in found))


if __name__ == "__main__":
    sys.exit(main())

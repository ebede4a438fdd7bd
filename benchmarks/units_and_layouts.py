"""AVX2 against AVX-512, and NCHW and NHWC against NCHWc, over the convolutions of five networks.

    python benchmarks/units_and_layouts.py [--gate COMMAND] [--only NAME…]      measure what is left
    python benchmarks/units_and_layouts.py --check                              against numpy
    python benchmarks/units_and_layouts.py --tables                             write the page anew

Each distinct convolution, with what is fused into it, is timed on one thread. Every side gets the
same number of candidates: the ones with the least estimates, implementations in turn and each
register tile once, and a few drawn at random. The best of each side are then timed in turn. For a
dozen tasks more is drawn, from the space and from a wider one; where NCHW or NHWC is fastest, its
conversions from and to blocks are timed, too.

Kernels are built first, then timed as long as a gate is open. `--gate COMMAND` is what opens one:
it gets a program to run as further arguments, runs it as soon as nothing else disturbs, and lets
that last for a minute. Results are lines of benchmarks/results/units_and_layouts.jsonl; the same
command continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import gcd, inf
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from convolution_sides import (
    NETWORKS,
    SIDES,
    UNITS,
    Choice,
    Layer,
    Side,
    choices_of,
    described,
    families,
    family_of,
    in_turn,
    layers,
    more_choices,
    placement,
)
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import Candidate, Placement
from tilewright.graph.arrange import copying
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.convolution import convolution
from tilewright.kernels.registry import implementation
from tilewright.measure.checking import check_kernel
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.kernels import KernelMeasurer, open_worker

RESULTS = Path(__file__).parent / "results" / "units_and_layouts.jsonl"
SAMPLED, BEHIND = 12, 3
"""Convolutions of which more candidates are drawn: of all kinds, and where a unit does worst."""
ROUNDS = 6
AGAIN = 0.97
"""A layout that takes at most so much of the time of blocks is compared with more of them."""
_GATE_S = 45.0
_UNSTEADY, _TRIES = 0.15, 2
"""Times whose quartiles are further apart, by the median, are taken once more, and then again."""
_MEMORY_BYTES = 8 << 30
_BUILD_S, _TIME_S = 60.0, 60.0

Row = dict[str, Any]


@dataclass(slots=True)
class Timed:
    """A candidate in the worker's slot, and its samples."""

    choice: Choice
    slot: int
    first_s: float = inf
    samples_s: list[float] = field(default_factory=list)


class Bench:
    """One worker with one thread that builds and times kernels of all units."""

    def __init__(self) -> None:
        self._worker = open_worker(placement("AVX-512"), _MEMORY_BYTES)
        self._slots = count(1)
        usual = kernel_protocol(placement("AVX-512"))
        self._first = replace(usual, warmup=1, repeats=2, sample_s=0.002)
        self._last = replace(usual, warmup=1, repeats=3, sample_s=0.003)

    def close(self) -> None:
        """Stop the worker."""
        self._worker.stop()

    def build(self, choices: Sequence[Choice], unit: str) -> list[Timed]:
        """Those of the candidates that can be built."""
        return [t for t in (self._built(c, placement(unit)) for c in choices) if t is not None]

    def _built(self, choice: Choice, on: Placement) -> Timed | None:
        made = Timed(choice, next(self._slots))
        try:
            message = ("build", made.slot, choice[0].text, choice[1], on)
            self._worker.request(message, _BUILD_S)
        except RemoteError as error:
            print(f"{choice[1]}: {error}", file=sys.stderr)
            return None
        return made

    def compare(self, sides: Mapping[str, Sequence[Timed]]) -> dict[str, Row]:
        """All candidates once, sides in turn; then the best two of each, all in turn. Gives for
        each side its best candidate and its quartiles."""
        least_s = dict.fromkeys(sides, inf)
        for place, index in in_turn([iter(range(len(each))) for each in sides.values()]):
            name = list(sides)[place]
            timed = sides[name][index]
            timed.first_s = median(self._time(timed, self._first, 1.5 * least_s[name]))
            least_s[name] = min(least_s[name], timed.first_s)
        finals: dict[str, list[Timed]] = {}
        for name, each in sides.items():
            fastest = sorted(each, key=lambda timed: timed.first_s)[:2]
            finals[name] = [timed for timed in fastest if timed.first_s <= 1.1 * least_s[name]]
        every = [timed for each in finals.values() for timed in each]
        for timed in every:
            timed.samples_s = []
        for number in range(ROUNDS):
            for timed in every if number % 2 == 0 else every[::-1]:
                timed.samples_s += self._time(timed, self._last, inf)
        return {
            name: _row(min(each, key=lambda t: median(t.samples_s)), sides[name])
            for name, each in finals.items()
            if each
        }

    def release(self, sides: Mapping[str, Sequence[Timed]]) -> None:
        """Forget kernels."""
        slots = [timed.slot for each in sides.values() for timed in each]
        self._worker.request(("release", slots), _TIME_S)

    def _time(self, timed: Timed, protocol: Any, give_up_s: float) -> list[float]:
        return self._worker.request(("measure", timed.slot, protocol, 0, give_up_s), _TIME_S)


def _row(best: Timed, every: Sequence[Timed]) -> Row:
    low, middle, high = (round(1e6 * value, 2) for value in quantiles(best.samples_s, n=4))
    return {
        "us": middle,
        "low": low,
        "high": high,
        **told_of(best.choice[1]),
        "place": every.index(best),
        "first": [round(1e6 * timed.first_s, 1) for timed in every],
    }


def unsteady(compared: Mapping[str, Row]) -> bool:
    """Whether something disturbed the last samples of a side."""
    return any(row["high"] - row["low"] > _UNSTEADY * row["us"] for row in compared.values())


def told_of(candidate: Candidate) -> Row:
    """What a line tells of a candidate, the forms of its first port and of its result."""
    return {
        "implementation": candidate.implementation,
        "settings": dict(candidate.settings),
        "forms": [str(candidate.forms[0]), str(candidate.forms[-1])],
    }


@dataclass(slots=True, kw_only=True)
class Work:
    """A task of the benchmark: its identity, its candidates by the name and the unit of each
    side, and what else its line tells."""

    key: str
    sides: Mapping[str, tuple[str, list[Choice]]]
    told: Row

    @property
    def seconds(self) -> float:
        """How long timing takes, roughly."""
        once_s = self.told["conv"]["flop"] / 90e9
        candidates = sum(len(choices) for _, choices in self.sides.values())
        finals = 2 * len(self.sides) * ROUNDS
        return candidates * (0.012 + 3 * once_s) + finals * (0.012 + 4 * max(once_s, 0.003))


def comparison(layer: Layer) -> Work:
    """Units and layouts."""
    sizes = {s.name: sum(f.settings for f in families(layer.workload, s)) for s in SIDES}
    told = {
        "name": layer.name,
        "calls": dict(layer.calls),
        "conv": described(layer.workload),
        "settings": sizes,
    }
    return Work(
        key=layer.workload.key,
        sides={s.name: (s.unit, choices_of(layer.workload, s)) for s in SIDES},
        told=told,
    )


def sample(layer: Layer, unit: str) -> Work:
    """More candidates of a unit, from its space and from outside."""
    side = Side(unit, "NCHWc")
    usual = {"usual": choices_of(layer.workload, side), **more_choices(layer.workload, side)}
    return Work(
        key=f"{layer.workload.key} {unit}",
        sides={name: (unit, choices) for name, choices in usual.items()},
        told={"name": layer.name, "unit": unit, "conv": described(layer.workload)},
    )


def again(layer: Layer, layout: str, row: Row) -> Work:
    """The best kernel of a layout against four times as many in blocks, and what it takes to turn
    its data from blocks, and its result back."""
    unit, workload = "AVX-512", layer.workload
    blocks = Side(unit, "NCHWc")
    every = [*choices_of(workload, blocks), *choices_of(workload, blocks, 4)]
    sides = {"NCHWc": (unit, list(dict.fromkeys(every)))}
    sides[layout] = (unit, [winner(workload, Side(unit, layout), row)])
    conv = convolution(workload)
    for name, kind in (("in", workload.types[conv.data]), ("out", workload.result)):
        sides[name] = (unit, _conversions(kind, layout, back=name == "out"))
    told = {"name": layer.name, "layout": layout, "conv": described(workload)}
    return Work(key=f"{workload.key} {layout}", sides=sides, told=told)


def winner(workload: Workload, side: Side, row: Row) -> Choice:
    """The candidate that a line tells as the best of a side."""
    for choice in choices_of(workload, side):
        if told_of(choice[1]).items() <= row.items():
            return choice
    raise SystemExit(f"{side.name} of {workload.key} has no such candidate any more: {row}")


def _conversions(kind: TensorType, layout: str, *, back: bool) -> list[Choice]:
    """Ways from blocks to a layout or `back`. Blocks of all channels lie as NHWC does."""
    on, channels = placement("AVX-512"), kind.shape[1]
    other = PLAIN if layout == "NCHW" else blocked(channels)
    forms = (blocked(gcd(channels, on.target.lanes(kind.dtype))), other)
    family = family_of(
        copying(kind), implementation("injective"), [forms[::-1] if back else forms], on
    )
    return [(family.workload, family.candidate(i)) for i in range(len(family.estimates_s))]


def spread_out(found: Sequence[Layer]) -> list[Layer]:
    """A dozen of the convolutions, of all kinds and sizes."""

    def kind(layer: Layer) -> tuple[Any, ...]:
        conv = convolution(layer.workload)
        return conv.kernel, conv.strides, conv.flop

    ordered = sorted(found, key=kind)
    step = len(ordered) / SAMPLED
    return [ordered[int(step * (number + 0.5))] for number in range(SAMPLED)]


def far_behind(found: Sequence[Layer], known: Mapping[str, Row], unit: str) -> list[Layer]:
    """The few convolutions at which a unit is furthest behind the other, of those whose channels
    suit blocks of both."""
    (other,) = UNITS.keys() - {unit}

    def ratio(layer: Layer) -> float:
        sides = known.get(f"comparison {layer.workload.key}", {}).get("sides", {})
        ours, theirs = (sides.get(f"{name} NCHWc", {}).get("us", inf) for name in (unit, other))
        return ours / theirs if max(ours, theirs) < inf else 0.0

    suited = (layer for layer in found if convolution(layer.workload).out_channels % 8 == 0)
    return sorted(suited, key=ratio, reverse=True)[:BEHIND]


def read(path: Path) -> dict[str, Row]:
    """The lines that are there, by what they are of and their keys, but for one cut short."""
    found: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[f"{row['of']} {row['key']}"] = row
    return found


def wanted(
    found: Sequence[Layer], known: Mapping[str, Row]
) -> Iterator[tuple[str, Callable[[], Work]]]:
    """What is to be measured, by name, and how its candidates are found."""

    def samples(unit: str) -> Iterator[tuple[str, Callable[[], Work]]]:
        for layer in (*far_behind(found, known, unit), *spread_out(found)):
            yield f"sample {layer.workload.key} {unit}", partial(sample, layer, unit)

    for layer in found:
        yield f"comparison {layer.workload.key}", partial(comparison, layer)
    yield from samples("AVX2")
    for layer in found:
        row = known.get(f"comparison {layer.workload.key}")
        for layout in ("NCHW", "NHWC") if row else ():
            sides = row["sides"]
            mine, blocks = sides[f"AVX-512 {layout}"], sides.get("AVX-512 NCHWc")
            if blocks and mine["us"] <= AGAIN * blocks["us"]:
                name = f"again {layer.workload.key} {layout}"
                yield name, partial(again, layer, layout, mine)
    yield from samples("AVX-512")


@contextmanager
def opened(gate: str | None) -> Generator[None]:
    """While a gate is open."""
    if gate is None:
        yield
        return
    waiting = [sys.executable, "-c", "print('open', flush=True); input()"]
    process = subprocess.Popen(
        [*shlex.split(gate), *waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    if process.stdout.readline().strip() != "open":
        sys.exit(f"the gate {gate!r} did not open")
    try:
        yield
    finally:
        process.stdin.write("\n")
        process.stdin.close()
        process.wait()


class Queue:
    """What is built and waits for an open gate."""

    def __init__(self, bench: Bench, results: Path, found: Sequence[Layer]) -> None:
        self._bench, self._results, self._found = bench, results, found
        self._asked: set[str] = set()
        self._tries: Counter[str] = Counter()
        self.ready: list[tuple[str, Work, dict[str, list[Timed]]]] = []

    def fill(self, ahead_s: float) -> None:
        """Build what takes so long to time, roughly."""
        known = read(self._results)
        for name, make in wanted(self._found, known):
            if sum(work.seconds for _, work, _ in self.ready) > ahead_s:
                return
            if name not in known and name not in self._asked:
                self._asked.add(name)
                work = make()
                built = {n: self._bench.build(some, on) for n, (on, some) in work.sides.items()}
                self.ready.append((name, work, built))
                print(f"built {name}: {work.told['name']}", flush=True)

    def time_some(self) -> None:
        """Time what is ready, as long as a gate is open, and keep the lines."""
        began_s, before = time.monotonic(), len(self.ready)
        while self.ready and time.monotonic() - began_s < _GATE_S:
            name, work, built = self.ready.pop(0)
            try:
                compared = self._bench.compare(built)
            except (ChildError, RemoteError) as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            if unsteady(compared) and self._tries[name] < _TRIES:
                self._tries[name] += 1
                self.ready.append((name, work, built))
                continue
            row = {"of": name.split()[0], "key": work.key, **work.told, "sides": compared}
            with self._results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
            self._bench.release(built)
        took_s = time.monotonic() - began_s
        print(f"timed {before - len(self.ready)} in {took_s:.0f} s", flush=True)


def measure(given: argparse.Namespace) -> None:
    """Build, time what is built while a gate is open, and go on until nothing is left, or for so
    many gates."""
    given.results.parent.mkdir(parents=True, exist_ok=True)
    bench = Bench()
    queue = Queue(bench, given.results, layers(given.only))
    try:
        queue.fill(given.ahead)
        for _ in range(given.gates):
            if queue.ready:
                with opened(given.gate):
                    queue.time_some()
                queue.fill(given.ahead)
    finally:
        bench.close()


def check(given: argparse.Namespace) -> None:
    """Compare the best candidates of the dozen's sides with numpy."""
    known = read(given.results)
    for layer in spread_out(layers(given.only)):
        row = known.get(f"comparison {layer.workload.key}", {"sides": {}})
        for side in (side for side in SIDES if side.name in row["sides"]):
            workload, candidate = winner(layer.workload, side, row["sides"][side.name])
            with KernelMeasurer(placement(side.unit), builders=1) as measurer:
                found = check_kernel(measurer, workload, candidate, 0)
            if found.failure is not None:
                raise SystemExit(f"{layer.name}: {found.failure.message}")
            print(f"{layer.name}, {side.name}: {found.error:.1e} (bound {found.bound:.1e})")


def main() -> None:
    """Measure, check, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--gate", help="what opens a minute without disturbance")
    parser.add_argument("--gates", type=int, default=1000, help="stop after so many")
    parser.add_argument("--ahead", type=float, default=_GATE_S, help="build for so many seconds")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--tables", action="store_true", help="write the page, measure nothing")
    modes.add_argument("--check", action="store_true", help="compare the dozen's best with numpy")
    given = parser.parse_args()
    if given.tables:
        from units_and_layouts_tables import write_tables

        write_tables(read(given.results))
        return
    (check if given.check else measure)(given)


if __name__ == "__main__":
    main()

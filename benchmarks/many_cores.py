"""Lanes on many cores, and operators beside neighbours: one run of three minutes on a
machine that is only lent, and has TVM's compiler.

    python benchmarks/many_cores.py prepare --plans plans --cores 16
    python benchmarks/many_cores.py run --plans plans --out many_cores.jsonl --seconds 200
    python benchmarks/many_cores.py report many_cores.jsonl

`prepare` plans networks in lanes from what is predicted, here. `run` compiles them there, each one
call after the other and in lanes, in a process each, and operators for each number of cores. Then
it runs the networks in turn: one call after the other on 1, 2, 4 … cores, in lanes of one core and
of several. Each call is timed in its place, so that the same plan is simulated with measured times.
Last come operators on 1, 2, 3 … cores while others stream memory on cores of their own. Every
result is a line that is written at once. `report` writes tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from card.archive import lines, same
from curves.many_cores_told import NEIGHBOUR, predicted, report
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.hardware.device import local_placement
from tilewright.hardware.probe import core_groups
from tilewright.measure.circumstances import kernel_protocol

NETWORKS = ("nasnet_mobile", "inception_v3", "googlenet", "squeezenet1_1")
"""What takes longest to compile first."""
OPERATORS = (
    "op:conv2d[c=128,h=28,k=3,pad=1,out=128]", "op:conv2d[c=64,h=112,k=1,pad=0,out=256]",
    "op:dense[m=1,k=4096,n=4096]", "op:depthwise[c=192,h=56,k=3]",
    "op:add[shape=1x64x256x256]", "op:softmax[shape=1x8x1024x1024]",
    "op:max_pool2d[c=64,h=112,k=3,stride=2,pad=1]", "op:layer_norm[shape=1024x768]",
    "op:conv2d[c=64,h=56,k=3,pad=1,out=64]", "op:relu[shape=1x256x56x56]",
)  # fmt: skip
COUNTS, NEIGHBOURS, WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16), (0, 1, 2, 4, 8), (1, 2, 4, 8)
ROUNDS, ROUND_S, PLACES = 7, 0.06, 7
TURNS, _SAMPLES, _SAMPLE_S = 2, 3, 0.006
COMPILING_S = 120.0
_RESERVE_S, _REQUEST_S, _RUNNING_S = 2.0, 60.0, 170.0
Line = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made, ran = commands.add_parser("prepare"), commands.add_parser("run")
    for parts in (made, ran):
        parts.add_argument("--plans", type=Path, required=True, help="a folder")
        parts.add_argument("--networks", nargs="*", default=list(NETWORKS))
    made.add_argument("--cores", type=int, required=True)
    ran.add_argument("--out", type=Path, required=True)
    ran.add_argument("--operators", nargs="*", default=list(OPERATORS))
    ran.add_argument("--cores", type=int, default=local_placement().resources.cores)
    ran.add_argument("--seconds", type=float, default=200.0)
    ran.add_argument("--compiling", type=float, default=COMPILING_S, help="seconds at most")
    ran.add_argument("--rounds", type=int, default=ROUNDS)
    ran.add_argument("--turns", type=int, default=TURNS, help="times of every operator")
    told = commands.add_parser("report")
    told.add_argument("results", type=Path)
    told.add_argument("--plans", type=Path, help="also compare what they predict")
    given = parser.parse_args(arguments)
    if given.command == "report":
        found = [*lines(given.results)]
        print("\n".join(report(found)))
        if given.plans:
            print(f"\n{predicted(found, lambda name: place(given.plans, name, 'lanes'))}")
        return
    if given.command == "prepare":
        from curves.lanes_worker import kept_plan

        for name in given.networks:
            for way, widths in ways(given.cores).items():
                if widths:
                    plan = kept_plan(name, given.cores, widths, place(given.plans, name, way))
                    print(name, way, f"{1e3 * plan.schedule.objective:.3f} ms", flush=True)
        return
    with ExitStack() as stack:
        run = Run(
            plans=given.plans,
            out=given.out,
            cpus=local_placement().binding.cpus[: given.cores],
            until_s=time.monotonic() + given.seconds - _RESERVE_S,
            stack=stack,
        )
        machine = {"model": local_placement().target.model, "physical": core_groups(Path("/"))}
        run.write({"part": "machine", "cpus": run.cpus, **machine})
        run.compile(given.networks, given.operators, given.compiling)
        for name in given.networks:
            run.network(name, given.rounds)
        for turn in range(given.turns):
            run.grid(given.operators, turn)


@dataclass(kw_only=True)
class Run:
    """Children that have compiled something, and where results go; nothing new begins later than
    `until_s` by the monotonic clock."""

    plans: Path
    out: Path
    cpus: Sequence[int]
    until_s: float
    stack: ExitStack
    networks: dict[tuple[str, str], Child] = field(default_factory=dict[tuple[str, str], Child])
    workers: dict[int, Child] = field(default_factory=dict[int, Child])
    beside: list[Child] = field(default_factory=list[Child])
    _began_s: float = field(default_factory=time.monotonic)

    @property
    def cores(self) -> int:
        """How many there are."""
        return len(self.cpus)

    @property
    def late(self) -> bool:
        """Whether nothing new may begin."""
        return time.monotonic() > self.until_s

    def write(self, line: Line) -> None:
        """Append a result, and tell."""
        line = {**line, "at_s": round(time.monotonic() - self._began_s, 2)}
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        told = {k: v for k, v in line.items() if k in ("part", "network", "way", "cores", "at_s")}
        print(*told.values(), file=sys.stderr, flush=True)

    def tried(self, line: Line, measure: Callable[[], Line]) -> Line:
        """What was measured, or why not; written down."""
        if self.late:
            return {"failure": "no time was left"}
        try:
            found = measure()
        except (ChildError, RemoteError) as error:
            found = {"failure": f"{type(error).__name__}: {str(error)[-800:]}"}
        self.write({**line, **found})
        return found

    # ---------------------------------------------------------------------------------- compiling

    def compile(
        self, networks: Sequence[str], operators: Sequence[str], most_s: float = COMPILING_S
    ) -> None:
        """All at a time, each in a process that then runs it; what takes longest is to be first."""
        left_s = min(most_s, self.until_s - time.monotonic())
        asked: list[Future[None]] = []
        pool = self.stack.enter_context(ThreadPoolExecutor(64))
        given = ways(self.cores)
        for way, name in product([*given][::-1], networks):
            child = self._child("curves.lanes_worker")
            asked.append(pool.submit(self._begin_network, child, name, way, given[way], left_s))
        for count in [each for each in COUNTS if each <= self.cores and operators]:
            cpus = self.cpus[:count]
            child = self.workers[count] = self._child("curves.grid_worker", cpus)
            request = ("begin", tuple(operators), tuple(cpus))
            asked.append(pool.submit(self._begin, child, {"cores": count}, request, left_s))
        for number in range(min(max(NEIGHBOURS), self.cores - 1) if operators else 0):
            cpu = self.cpus[-1 - number]
            child = self._child("curves.grid_worker", (cpu,))
            self.beside.append(child)
            request = ("begin", (NEIGHBOUR,), (cpu,))
            asked.append(pool.submit(self._begin, child, {"cpu": cpu}, request, left_s))
        for each in asked:
            each.result()

    def _child(self, module: str, cpus: Sequence[int] | None = None) -> Child:
        return self.stack.enter_context(Child(module, cpus=cpus))

    def _begin(self, child: Child, line: Line, request: tuple[Any, ...], left_s: float) -> bool:
        found = self.tried(
            {"part": "begun", **line}, lambda: {"told": child.request(request, left_s)}
        )
        return "failure" not in found

    def _begin_network(
        self, child: Child, name: str, way: str, widths: Sequence[int], left_s: float
    ) -> None:
        folder = place(self.plans, name, way).resolve()
        request = ("begin", name, self.cores, tuple(widths), str(folder))
        if self._begin(child, {"network": name, "way": way}, request, left_s):
            self.networks[name, way] = child

    # ----------------------------------------------------------------------------------- networks

    def network(self, name: str, rounds: int) -> None:
        """All ways to run a network in turn, and what its plan takes in thought."""
        known = {way: child for (other, way), child in self.networks.items() if other == name}
        given = {
            way: self.tried(
                {"part": "outputs", "network": name, "way": way},
                lambda child=child: {"values": child.request(self._on("outputs"), _REQUEST_S)},
            )
            for way, child in known.items()
        }
        usual = given.get("sequence", {}).get("values")
        for way, found in given.items():
            if usual and "values" in found:
                self.write({"part": "same", "network": name, "way": way, **same(usual, found)})
        configurations = [(way, self.cores) for way in known]
        configurations += [
            ("sequence", c) for c in (*WIDTHS[::-1],) if c < self.cores and "sequence" in known
        ]
        for number in range(rounds):
            for way, cores in configurations:
                if number == 0 or cores == self.cores or cores >= self.cores // 4 or number < 3:
                    self.tried(
                        {"part": "time", "network": name, "way": way, "cores": cores},
                        lambda way=way, cores=cores: {
                            "samples_s": known[way].request(
                                self._on("time", ROUND_S, cores=cores), _REQUEST_S
                            )
                        },
                    )
        self._in_thought(name, known)

    def _in_thought(self, name: str, known: dict[str, Child]) -> None:
        if "sequence" not in known:
            return
        times: dict[int, dict[str, float]] = {}
        for cores in sorted({*(w for w in WIDTHS if w < self.cores), self.cores}, reverse=True):
            found = self.tried(
                {"part": "calls", "network": name, "cores": cores},
                lambda cores=cores: {
                    "calls_s": known["sequence"].request(
                        self._on("calls", PLACES, cores=cores), _REQUEST_S
                    )
                },
            )
            times[cores] = found.get("calls_s", {})
        for way, child in known.items():
            if way != "sequence" and all(times.values()):
                self.tried(
                    {"part": "simulated", "network": name, "way": way},
                    lambda child=child: {
                        "simulated_s": child.request(("simulated", times), _REQUEST_S)
                    },
                )

    def _on(self, handler: str, *more: Any, cores: int | None = None) -> tuple[Any, ...]:
        count = self.cores if cores is None else cores
        return (handler, count, tuple(self.cpus[:count]), *more)

    # --------------------------------------------------------------------------------------- grid

    def grid(self, operators: Sequence[str], turn: int) -> None:
        """Operators on each number of cores beside each number of neighbours."""
        usual = kernel_protocol(local_placement())
        protocol = replace(usual, repeats=_SAMPLES, sample_s=_SAMPLE_S)
        for count in (n for n in NEIGHBOURS if n < self.cores):
            with self._running(count, protocol, turn):
                for cores, child in self.workers.items():
                    if cores + count > self.cores or self.late:
                        continue
                    for text in operators:
                        self.tried(
                            {"part": "grid", "operator": text, "cores": cores, "beside": count,
                             "turn": turn},
                            lambda child=child, text=text: {
                                "samples_s": child.request(("time", text, protocol), _REQUEST_S)
                            },
                        )  # fmt: skip
                    self.tried({"part": "rest"}, lambda child=child: {
                        "slept": child.request(("rest",), _REQUEST_S)
                    })  # fmt: skip

    @contextmanager
    def _running(self, count: int, protocol: Any, turn: int) -> Iterator[None]:
        """So many neighbours run meanwhile; how often each was called is written down."""
        warm = replace(protocol, activations="warm")
        with TemporaryDirectory() as place, ThreadPoolExecutor(max(1, count)) as pool:
            flag = Path(place) / "running"
            flag.touch()
            started = [Path(place) / f"started {number}" for number in range(count)]
            running = [
                pool.submit(
                    child.request,
                    ("keep_running", NEIGHBOUR, warm, str(flag), str(begun)),
                    _RUNNING_S,
                )
                for child, begun in zip(self.beside, started, strict=False)
            ]
            try:
                while not all(map(Path.exists, started)) and not any(r.done() for r in running):
                    time.sleep(1e-3)
                yield
            finally:
                flag.unlink()
        rates = [each.result() for each in running if each.exception() is None]
        if count:
            self.write({"part": "neighbours", "beside": count, "turn": turn, "calls_per_s": rates})


def ways(cores: int) -> dict[str, Sequence[int]]:
    """The ways to run a network, with the widths of lanes that each may have."""
    several = [width for width in WIDTHS if width < cores]
    found: dict[str, Sequence[int]] = {"sequence": (), "lanes of one": (1,)}
    return {**found, "lanes": several} if len(several) > 1 else found


def place(plans: Path, name: str, way: str) -> Path:
    """Where the plan of a network is."""
    return plans / f"{name} in {way}"


if __name__ == "__main__":
    main(sys.argv[1:])

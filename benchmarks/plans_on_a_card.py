"""Plans of parts over a CPU and a GPU, beside the CPU alone and the GPU alone, in one run of less
than nine minutes on a machine that is only lent, and has no compiler.

    python benchmarks/plans_on_a_card.py prepare --model H200 --file plans --runtime
    python benchmarks/plans_on_a_card.py run --plans plans --out plans.jsonl
    python benchmarks/plans_on_a_card.py report plans.jsonl

`prepare` plans networks from what is predicted of both devices, which need not be here, and
compiles the parts of each way to compute them; `--runtime` puts TVM without its compiler beside
them. Ways are one device `alone`, `planned`, and `split`: planned as if hand-offs between parts
took nothing, for where those decide, a plan keeps all on one device, and nothing would be seen of
the two together. Small weights are carried, others drawn anew from their names. A network "a+b" is
two of them in one plan, each asked once at a time.

`run` has all ways of a network in processes at a time, compares what they answer, and times them in
turn: what a request takes, and in it each part, copy and hand-off. With the times of parts, copies
and hand-offs the plan is carried out in thought. Every result is a line that is written at once; a
command that is repeated goes on with the networks that are not done. That machine needs this
checkout, FOLDER/runtime on PYTHONPATH where there is no TVM, and Python 3.11 or newer with numpy,
psutil, msgspec, platformdirs, ml_dtypes, apache-tvm-ffi and cuda-bindings. `--on simulated`
executes kernels of GPUs on the CPU: a trial of the whole way, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from card.archive import MOST_BYTES, SIMULATED, lines, same
from card.plans import (
    Carried,
    CarriedParts,
    CarriedPlan,
    Compiling,
    Texts,
    bare,
    is_written,
    small_constants,
    write,
)
from card.plans_told import (
    CPU_NAME,
    Asked,
    as_measured,
    middle,
    own_s,
    report,
    without_pauses,
)
from networks_on_a_card import not_compiled
from tilewright.core.errors import TilewrightError
from tilewright.core.events import discard
from tilewright.core.records import Placement
from tilewright.core.scratch import scratch_folder
from tilewright.graph.network import Array
from tilewright.hardware.device import local_placement
from tilewright.measure.accesses.cuda import placement_on
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.simulator import simulate
from tilewright.serving import posts
from tilewright.serving.instance import Supervision
from tilewright.serving.plan_crew import PARALLEL, PlanCrew
from tilewright.serving.planned_networks import PlannedNetworks
from tilewright.serving.server import Server, ServerOptions

NETWORKS = ("googlenet", "towers", "inception_v3+googlenet")
MODEL = "H200"
_ALONE, PLANNED, SPLIT = "alone on ", "planned", "split"
_CPU_WORKER, _GPU_WORKER = "card.plans_worker", "card.simulated_parts"
_PLANNER, _CORES, _ROUNDS, _ROUND_S, _LEAST_RUNS = "heft", 16, 7, 0.3, 5
_MOST_S, _RESERVE_S, _ANSWER_S = 500.0, 20.0, 120.0
_RUNTIME = "runtime"


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("prepare")
    made.add_argument("networks", nargs="*")
    made.add_argument("--file", type=Path, required=True, help="a folder")
    made.add_argument("--model", default=MODEL, help="the GPU, as in 'cuda -model=…'")
    made.add_argument("--cores", type=int, default=_CORES, help="of the CPU there")
    made.add_argument("--planner", default=_PLANNER)
    made.add_argument("--runtime", action="store_true", help="bring TVM without its compiler")
    made.add_argument("--on", choices=("card", SIMULATED), default="card")
    ran = commands.add_parser("run")
    ran.add_argument("--plans", type=Path, required=True, help="a folder")
    ran.add_argument("--out", type=Path, required=True)
    ran.add_argument("--on", choices=("card", SIMULATED), default="card")
    ran.add_argument("--seconds", type=float, default=_MOST_S)
    ran.add_argument("--rounds", type=int, default=_ROUNDS)
    told = commands.add_parser("report")
    told.add_argument("results", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "report":
        print(report(list(lines(given.results))))
    elif given.command == "prepare":
        for name in given.networks or NETWORKS:
            prepare(name, given)
        if given.runtime:
            from curves.building import add_runtime

            add_runtime(given.file / _RUNTIME)
        size = sum(path.stat().st_size for path in given.file.rglob("*"))
        _tell(f"{given.file}: {size / 2**20:.1f} MiB before it is packed")
        if size > MOST_BYTES:
            _tell(f"pack it: no more than {MOST_BYTES >> 20} MiB travel")
    else:
        run(given)


# ------------------------------------------------------------------------------ with the compiler


def prepare(name: str, given: argparse.Namespace) -> None:
    """Plan a network, or several, and compile all ways to compute them, unless that is done."""
    from tilewright.kernels.spaces import MAX_ERROR
    from tilewright.models import ModelOptions
    from tilewright.plan.network_scheduling import Wanted, scheduling_problem, titles
    from tilewright.plan.planning_data import PlanningRequest, placements_of, planning_data
    from tilewright.plan.scheduling.plan_file import PlannedNetwork
    from tilewright.plan.scheduling.planning import schedule_with
    from tilewright.store import open_store

    folder = given.file / Path(name).stem
    if is_written(folder):
        return
    placements = placements_of([CPU_NAME, f"cuda -model={given.model}"], None, given.cores)
    request, store = PlanningRequest(ModelOptions(), "default", MAX_ERROR), open_store("memory:")
    with TemporaryDirectory() as scratch:
        models = [_model(each, Path(scratch)) for each in name.split("+")]
        data = [planning_data(each, placements, request, store, discard) for each in models]
        problem = scheduling_problem(data, Wanted())
        schedules = {f"{_ALONE}{device}": alone_on(problem, device) for device in placements}
        schedules[PLANNED] = schedule_with(given.planner, problem)
        schedules[SPLIT] = without_handoffs(problem, given.planner)
        named = [
            PlannedNetwork(name=title, model=model, options={}, settings="default")
            for title, model in zip(titles(data), models, strict=True)
        ]
        plan = Plan(problem=problem, schedule=schedules[PLANNED], networks=tuple(named))
        carried = _compiled(plan, schedules, placements, given.on, folder)
    write(folder, plan, carried)
    told = ", ".join(f"{way} {1e3 * s:.3f} ms" for way, s in carried.promised_s.items())
    _tell(f"{name}: {told}; {len(carried.stored)} parts of {', '.join(carried.ways)}")


def _compiled(
    plan: Plan,
    schedules: Mapping[str, Schedule],
    placements: Mapping[str, Placement],
    on: str,
    folder: Path,
) -> Carried:
    """Compile the ways of a plan that are not all on one device twice."""
    from tilewright.compiler.cuda.compilers import compiled_source
    from tilewright.deploy.plan_parts import PlanParts
    from tilewright.store import open_store

    compile_text = not_compiled if on == SIMULATED else compiled_source
    compiling = Compiling(compile_text=Texts(compile_text), stored={})

    class ToCarry(PlanParts):
        """Compiles for devices that are elsewhere."""

        compile = staticmethod(compiling)

    shutil.rmtree(folder, ignore_errors=True)  # of a command that was cut off
    folder.mkdir(parents=True)
    parts = ToCarry(plan, open_store("memory:"), folder.resolve(), placements=placements)
    ways = {f"{_ALONE}{device}": parts.alone(device) for device in placements}
    for way in (PLANNED, SPLIT):
        if len(set(_devices(plan.problem, schedules[way]))) > 1:
            ways[way] = parts.way(schedules[way])
    networks = {each: parts.network(each) for each in parts.names}
    return Carried(
        networks={each: bare(network) for each, network in networks.items()},
        constants={each: small_constants(network) for each, network in networks.items()},
        ways=ways,
        schedules=schedules,
        promised_s={w: simulate(plan.problem, each).objective for w, each in schedules.items()},
        stored=compiling.stored,
    )


def without_handoffs(problem: SchedulingProblem, planner: str) -> Schedule:
    """The schedule where hand-offs would take nothing."""
    from tilewright.plan.scheduling.planning import schedule_with

    return schedule_with(planner, replace(problem, handoff_s=0.0))


def _model(name: str, folder: Path) -> str:
    if Path(name).suffix:
        return name
    from two_cores import model_of

    return model_of(name, folder)


def alone_on(problem: SchedulingProblem, device: str) -> Schedule:
    """The schedule of all that has kernels one after the other on a device."""
    from tilewright.plan.scheduling.planning import schedule_with

    kept = {
        call.name: [n for n, m in enumerate(call.modes) if not m.kernel or m.device == device]
        for call in problem.calls
    }
    calls = (
        replace(call, task="", modes=tuple(call.modes[n] for n in kept[call.name]))
        for call in problem.calls
    )
    found = schedule_with("sequential", replace(problem, calls=tuple(calls)))
    slots = (replace(slot, mode=kept[slot.call][slot.mode]) for slot in found.slots)
    return replace(found, slots=tuple(slots))


def _devices(problem: SchedulingProblem, schedule: Schedule) -> Iterator[str]:
    for call in problem.calls:
        if any(mode.kernel for mode in call.modes):
            yield schedule.mode_of(problem, call.name).device


# ------------------------------------------------------------------------------------ on the card


def run(given: argparse.Namespace) -> None:
    """Measure all networks that are not done, the first one first, until time is up."""
    until_s = time.monotonic() + given.seconds - _RESERVE_S
    known = list(lines(given.out)) if given.out.exists() else []
    given.out.write_text("".join(json.dumps(line) + "\n" for line in known), encoding="utf-8")
    done = {line["network"] for line in known if line["part"] == "done"}
    if given.on == SIMULATED:
        posts.GPU_WORKER = _GPU_WORKER
    folders = [f for f in sorted(given.plans.iterdir()) if f.name not in {*done, _RUNTIME}]
    order = {name: number for number, name in enumerate(NETWORKS)}
    for folder in sorted(folders, key=lambda f: order.get(f.name, -1)):
        if time.monotonic() > until_s:
            _tell(f"{folder.name} is left; repeat the command")
            continue
        Run(plan=CarriedPlan(folder), out=given.out, on=given.on, until_s=until_s).all(given.rounds)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A plan, where results go, and when nothing new begins any more on the monotonic clock."""

    plan: CarriedPlan
    out: Path
    on: str
    until_s: float

    def write(self, part: str, **more: Any) -> None:
        """Append a result, and tell."""
        line = {"part": part, "network": self.plan.name, **more}
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        _tell(" ".join([self.plan.name, part, more.get("way", "")]))

    def all(self, rounds: int) -> None:
        """All ways of it in turn."""
        self._begin()
        with ExitStack() as stack:
            servers = self._answering(stack)
            timed: dict[str, list[Asked]] = {way: [] for way in servers}
            for _ in range(rounds):
                for way, server in servers.items():
                    if time.monotonic() < self.until_s:
                        timed[way] += self._round(way, server)
        for way, requests in timed.items():
            if requests:
                self._in_thought(way, requests)
        if all(timed.values()):  # else time was up before, and a repeated command begins it anew
            self.write("done")

    def _answering(self, stack: ExitStack) -> dict[str, Server]:
        """A server for each way that can be had and answers, compared with the first of them."""
        placements, servers = self._placements(), dict[str, Server]()
        answers = dict[str, list[list[float]]]()
        for way in self.plan.carried.ways:
            try:
                server = stack.enter_context(self._server(way, placements))
                answers[way] = self._values(server)
            except TilewrightError as error:
                self.write("failed", way=way, failure=str(error)[-800:])
            else:
                servers[way] = server
        for way, values in answers.items():
            usual = next(iter(answers.values()))
            self.write("same", way=way, **same(usual, {"values": values}))
        return servers

    def _begin(self) -> None:
        """Make weights, and write down what is promised."""
        carried, began_s = self.plan.carried, time.monotonic()
        self.plan.add_weights()
        self.write("begun", on=self.on, weights_s=time.monotonic() - began_s)
        for way, seconds in carried.promised_s.items():
            own = carried.ways[way].parts.values() if way in carried.ways else ()
            devices = [part.place[0] for each in own for part in each]
            counts = {device: devices.count(device) for device in dict.fromkeys(devices)}
            self.write("promised", way=way, promised_s=seconds, parts=counts)

    def _placements(self) -> dict[str, Placement]:
        from tilewright.measure.targeting import placement_of
        from tilewright.testing.simulated_driver import H100

        def of(device: str) -> Placement:
            if device == CPU_NAME:
                return local_placement()
            return placement_on(H100) if self.on == SIMULATED else placement_of(device, None, None)

        return {each.name: of(each.name) for each in self.plan.plan.problem.devices}

    def _server(self, way: str, placements: Mapping[str, Placement]) -> Server:
        parts = CarriedParts(self.plan, way, placements)
        networks = PlannedNetworks(parts, grouped=False)
        crew = PlanCrew(parts, networks, PARALLEL, scratch_folder(), 1)
        patient = Supervision(starts=1, least_patience_s=30.0)
        options = ServerOptions(worker=_CPU_WORKER, supervision=patient)
        return Server(networks.groups, crew, options)

    def _values(self, server: Server) -> list[list[float]]:
        found = list[Array]()
        for answer in _ask(server):
            several = list(answer.values()) if isinstance(answer, dict) else [answer]
            found += several
        return [array.reshape(-1).astype(float).tolist() for array in found]

    def _round(self, way: str, server: Server) -> list[Asked]:
        """Requests for a while, one after the other."""
        found, end_s = list[Asked](), time.monotonic() + _ROUND_S
        while len(found) < _LEAST_RUNS or time.monotonic() < end_s:
            _crew(server).spans.clear()
            began_s = time.monotonic()
            _ask(server)
            ended_s = time.monotonic()
            spans = tuple(_crew(server).spans)
            found.append(Asked(began_s=began_s, ended_s=ended_s, spans=spans))
        self.write("time", way=way, samples_s=[each.takes_s for each in found])
        return found

    def _in_thought(self, way: str, requests: Sequence[Asked]) -> None:
        """What parts, copies and hand-offs took, and the plan with these times."""
        carried = self.plan.carried
        parts = [p for each in carried.ways[way].parts.values() for p in each]
        parts_s = {part.name: middle(own_s(part.name, requests)) for part in parts}
        copies_s = {
            to_device: middle(
                copy.end_s - copy.begin_s
                for each in requests
                for span in each.spans
                for copy in span.copies
                if copy.to_device == to_device
            )
            for to_device in (True, False)
        }
        handoff_s = middle(gap for each in requests for gap in each.handoffs_s(parts))
        problem = self.plan.plan.problem
        really = as_measured(problem, parts, parts_s, copies_s, handoff_s)
        schedule = without_pauses(problem, carried.schedules[way])
        simulated_s = simulate(really, schedule).objective
        told = [
            {"name": p.name, "device": p.place[0], "promised_s": p.expected_s,
             "takes_s": parts_s[p.name]}
            for p in parts
        ]  # fmt: skip
        self.write(
            "simulated",
            way=way,
            simulated_s=simulated_s,
            handoff_s=handoff_s,
            to_gpu_s=copies_s[True],
            from_gpu_s=copies_s[False],
            parts=told,
        )


def _crew(server: Server) -> PlanCrew:
    crew = server._crew  # pyright: ignore[reportPrivateUsage] - as PlanServer has it
    assert isinstance(crew, PlanCrew)
    return crew


def _ask(server: Server) -> list[Any]:
    """What each network answers on drawn inputs, all asked at a time."""
    _crew(server).gather(len(server.networks))
    given = {
        name: dict(zip((p.name for p in each.inputs), each.drawn_inputs(), strict=True))
        for name, each in server.networks.items()
    }
    answers = [server.submit(name, inputs) for name, inputs in given.items()]
    return [answer.result(_ANSWER_S) for answer in answers]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

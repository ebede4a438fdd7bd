"""Networks whose calls may run beside each other, on two cores: in lanes, and in turn.

    python benchmarks/two_cores.py told [NETWORK]…
    python benchmarks/two_cores.py run NETWORK --out two_cores.jsonl [--after FILE] [--rounds 7]
    python benchmarks/two_cores.py report two_cores.jsonl
    python benchmarks/two_cores.py bounds two_cores.jsonl

`told` says from predicted times, before anything is measured, what there is to gain: the work on
one core over the longest way (`work/span`, with a hand-off for each wait on the way), and two
times the time on two cores over the work, which two lanes of one core each cannot exceed (`most`).

`run` plans the network by several planners, from predicted times and then from those of its calls
in their places, compiles each plan that differs and one call after the other, and runs all in turn
in one process. In the same rounds all calls are timed in their places, on one core and on two, and
each plan is carried out in thought with these times. Measuring waits until `--after` exists, so
that nothing is compiled meanwhile; a second part, with the plans from measured times, waits for a
file of that name with `.2` behind it. Every result is a line that is written at once.

`bounds` searches the best schedule by the measured times of the turn whose sum on two cores
is the least, and proves what no schedule can be faster than.

`towers` are squeezenet1_1 and resnet18 with an image each, whose logits' inner product is the
answer, and `pair` are mobilenet_v2 and resnet18 in one file, whose answers nothing joins.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import compose, helper

from card.archive import lines
from curves.lanes_worker import as_measured, called
from pages import table
from tilewright.compiler.execute import LoadedNetwork
from tilewright.core.events import discard
from tilewright.core.records import Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.device import local_placement
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.measure.network_timing import time_places
from tilewright.models import ModelOptions, zoo
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.call_times import with_readers
from tilewright.plan.lanes import as_run, in_its_stages, in_stages, stages_of
from tilewright.plan.network_scheduling import Wanted, scheduling_problem
from tilewright.plan.planning_data import PlanningRequest, planning_data
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.answering import answer
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.precedence import critical_path, waits_of
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.store import open_store
from tilewright.store.known_candidates import choose_plan

PAIRS = {"towers": ("squeezenet1_1", "resnet18"), "pair": ("mobilenet_v2", "resnet18")}
NETWORKS = ("googlenet", "inception_v3", "nasnet_mobile", "squeezenet1_1", *PAIRS)
PLANNERS = ("auto", "stages", "ios", "cpsat")
BAR, SEARCH_S, PROVING_S = 1.25, 8.0, 20.0


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    told = commands.add_parser("told")
    told.add_argument("networks", nargs="*")
    ran = commands.add_parser("run")
    ran.add_argument("network")
    ran.add_argument("--out", type=Path, required=True)
    ran.add_argument("--after", type=Path)
    ran.add_argument("--rounds", type=int, default=7)
    bounded = commands.add_parser("bounds")
    bounded.add_argument("results", type=Path)
    reported = commands.add_parser("report")
    reported.add_argument("results", type=Path)
    given = parser.parse_args()
    if given.command == "told":
        print(to_gain(given.networks or NETWORKS))
    elif given.command == "run":
        with TemporaryDirectory() as folder:
            Run(name=given.network, folder=Path(folder), out=given.out).all(
                given.rounds, given.after
            )
    elif given.command == "bounds":
        print(bounds(list(lines(given.results))))
    else:
        print(report(list(lines(given.results))))


def model_of(name: str, folder: Path) -> str:
    """A model by the name that it has here."""
    if name not in PAIRS:
        return f"zoo:{name}"
    path = folder / f"{name}.onnx"
    if not path.exists():
        onnx.save(joined(*map(zoo.build, PAIRS[name]), inner_product=name == "towers"), path)
    return str(path)


def joined(*models: onnx.ModelProto, inner_product: bool) -> onnx.ModelProto:
    """Two networks in one, each with inputs of its own; their answers, or the inner product of
    these."""
    named = [compose.add_prefix(model, f"{n}/") for n, model in enumerate(models)]
    found = compose.merge_models(*named, io_map=[])
    del found.opset_import[:]
    found.opset_import.extend(models[0].opset_import)
    if inner_product:
        answers = [each.name for each in found.graph.output]
        ones = helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [1])
        found.graph.initializer.append(ones)
        nodes = [("Mul", answers, "products"), ("ReduceSum", ["products", "axis"], "product")]
        found.graph.node.extend(helper.make_node(kind, a, [b], b) for kind, a, b in nodes)
        del found.graph.output[:]
        kind = onnx.TensorProto.FLOAT
        found.graph.output.append(helper.make_tensor_value_info("product", kind, (1, 1)))
    return found


# ------------------------------------------------------------------------------- before measuring


def to_gain(networks: Sequence[str]) -> str:
    """A row for each network: what predicted times say there is to gain."""
    rows: list[list[str]] = []
    with TemporaryDirectory() as folder:
        for name in networks:
            problem = problem_of(model_of(name, Path(folder)))
            one, two = (on_cores(problem, cores) for cores in (1, 2))
            ratio = work_over_span(problem)
            most, counts = 2 * sum(two) / sum(one), "yes" if ratio >= BAR else "no"
            planned = answer(problem, "auto", SEARCH_S, as_run=in_its_stages).schedule
            gain = sum(two) / planned.objective
            rows.append([name, *map(_ms, (sum(one), sum(two))), f"{ratio:.2f}", counts])
            rows[-1] += [f"{most:.2f}", f"{gain:.2f}"]
            print(rows[-1], flush=True)
    header = ["network", "one core", "two cores", "work/span", f"{BAR} or more", "most", "planned"]
    return table(header, rows)


def problem_of(model: str) -> SchedulingProblem:
    """A network on this CPU with predicted times, of predictors as shipped."""
    request = PlanningRequest(ModelOptions(), "default", MAX_ERROR, fewer_cores=True)
    here = {"llvm": local_placement(2)}
    data = planning_data(model, here, request, open_store("memory:"), discard)
    return scheduling_problem([data], Wanted())


def on_cores(problem: SchedulingProblem, cores: int) -> list[float]:
    """What calls take on so many cores, or as many as they may have."""
    within = [[m for m in call.modes if m.cores <= cores] for call in problem.calls]
    return [max(modes, key=lambda mode: mode.cores).latency_s for modes in within]


def work_over_span(problem: SchedulingProblem) -> float:
    """The work on one core over the longest way, each wait on which takes a hand-off."""
    alone = on_cores(problem, 1)
    waiting = [s + problem.handoff_s * bool(b) for s, b in zip(alone, problem.before, strict=True)]
    return sum(alone) / critical_path(waits_of(problem), waiting)[0]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


# -------------------------------------------------------------------------------------- measuring

Line = dict[str, Any]
PLACES, ROUND_S, MOST = 3, 0.12, 12
"""Runs with calls timed in a round, and seconds and number of runs of each plan in it."""


@dataclass(kw_only=True)
class Run:
    """A network in this process, in all ways that were compiled, and where results go."""

    name: str
    folder: Path
    out: Path
    ways: dict[str, LoadedNetwork] = field(default_factory=dict[str, LoadedNetwork])
    plans: dict[str, NetworkPlan] = field(default_factory=dict[str, NetworkPlan])
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    places: list[dict[str, dict[str, float]]] = field(default_factory=list)

    def all(self, rounds: int, after: Path | None) -> None:
        """Both parts of it."""
        self.placement: Placement = local_placement(2)
        model = model_of(self.name, self.folder)
        self.network: PreparedNetwork = prepare(model, ModelOptions(), self.placement)
        store = open_store("memory:")
        usual = choose_plan(self.network, store, self.placement, "default", MAX_ERROR)
        self.problem = problem_of(model)
        self.inputs = self.network.sample_inputs(0)
        self.compile("sequential", usual)
        self.plan("predicted", self.problem, PLANNERS)
        for part in (1, 2):
            print(self.name, "ready", part, flush=True)
            place = after and after.with_name(after.name + (".2" if part == 2 else ""))
            while place and not place.exists():
                time.sleep(0.2)
            self.measure(part, rounds)
            if part == 1:
                real = as_measured(self.problem, self.times())
                self.plan("measured", real, PLANNERS[:2])

    def compile(self, way: str, plan: NetworkPlan) -> None:
        """Compile a plan, unless it is one that there is."""
        constants = self.network.fused.graph.constants
        self.plans[way] = plan
        same = next((w for w, other in self.plans.items() if other == plan and w != way), None)
        if same is None:
            self.ways[way] = LoadedNetwork.compiled(plan, self.placement.target, constants)
        else:
            print(self.name, way, "is", same, flush=True)

    def plan(self, kind: str, problem: SchedulingProblem, planners: Sequence[str]) -> None:
        """Plan by some planners with these times; write down what each promises."""
        usual = self.plans["sequential"]
        sequence = schedule_with("sequential", problem)
        for planner in planners:
            found = answer(problem, planner, SEARCH_S, as_run=in_its_stages).schedule
            stages = stages_of(usual, found.slots)
            staged = as_run(problem, found, stages)
            way = f"{planner}, {kind}"
            self.told[way] = (found, stages)
            self.compile(way, in_stages(usual, stages))
            wide = [stage for stage in stages if not isinstance(stage, str)]
            self.write({
                "part": "plan", "way": way, "sequence_s": sequence.objective,
                "planned_s": found.objective, "staged_s": staged.objective, "stages": len(wide),
                "bound_s": found.bound,
                "beside": sum(len(lane.calls) for s in wide for lane in s),
                "calls": len(usual.calls), "solve_s": found.solve_s,
            })  # fmt: skip

    def write(self, line: Line) -> None:
        """Append a result."""
        line = {"network": self.name, **line}
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print({k: v for k, v in line.items() if k != "places"}, flush=True)

    def measure(self, part: int, rounds: int) -> None:
        """All ways in turn, and all calls in their places."""
        cpus = self.placement.binding.cpus
        on_two: Callable[..., Any] = partial(called, 2, cpus)
        usual = on_two(lambda: self.ways["sequential"](self.inputs))
        same, repeats = dict[str, bool](), dict[str, int]()
        for way, each in self.ways.items():
            given = on_two(lambda each=each: each(self.inputs))
            same[way] = all(map(np.array_equal, usual, given))
            once_s = min(on_two(lambda each=each: each.time(self.inputs, 2, 1)))
            repeats[way] = max(2, min(MOST, int(ROUND_S / once_s)))
        samples: dict[str, list[list[float]]] = defaultdict(list)
        self.places.clear()
        regions: dict[str, list[dict[str, float]]] = defaultdict(list)
        for _ in range(rounds):
            for way, each in self.ways.items():
                run = partial(each.time, self.inputs, repeats[way], 1)
                samples[way].append(on_two(run))
                if way != "sequential":
                    timed = on_two(lambda each=each: each.time_calls(self.inputs, 1))
                    regions[way].append(dict(timed))
            self.places.append({str(n): called(n, cpus, self._calls) for n in (1, 2)})
        times = self.times()
        measured = as_measured(self.problem, times)
        for way in self.ways:
            line: Line = {"part": "run", "turn": part, "way": way, "same": same[way],
                          "samples_s": samples[way]}  # fmt: skip
            if way in self.told:
                found, stages = self.told[way]
                line["thought_s"] = as_run(measured, found, stages).objective
                line["regions"] = {
                    symbol: median(each[symbol] for each in regions[way])
                    for symbol in regions[way][0]
                    if symbol not in self.plans[way].symbols.values()
                }
            else:
                line["thought_s"] = schedule_with("sequential", measured).objective
                line["one_core_s"] = sum(times[1].values())
                line["two_cores_s"] = sum(times[2].values())
            self.write(line)
        self.write({"part": "places", "turn": part, "places": times})

    def _calls(self) -> dict[str, float]:
        loaded, inputs = self.ways["sequential"], self.inputs

        class Here:
            def time_calls(self, _name: str, _inputs: Any, **_: Any) -> list[tuple[str, float]]:
                return loaded.time_calls(inputs, PLACES)

        here: Any = Here()
        usual = self.plans["sequential"]
        found = time_places(here, "", usual, inputs)
        return with_readers(usual, found, {call.name for call in self.network.fused.calls})

    def times(self) -> dict[int, dict[str, float]]:
        """Seconds of each call by its number of cores, medians of the rounds."""
        return {
            cores: {
                name: median(each[str(cores)][name] for each in self.places)
                for name in self.places[0][str(cores)]
            }
            for cores in (1, 2)
        }


# ---------------------------------------------------------------------------------------- telling


def bounds(found: Sequence[Line]) -> str:
    """A row for each network: what `cpsat` finds and proves by measured times, and what of it is
    left in stages."""
    calmest: dict[str, tuple[float, dict[int, dict[str, float]]]] = {}
    for line in (each for each in found if each["part"] == "places"):
        times = {int(cores): known for cores, known in line["places"].items()}
        seen = sum(times[2].values()), times
        calmest[line["network"]] = min(calmest.get(line["network"], seen), seen, key=lambda e: e[0])
    rows: list[list[str]] = []
    with TemporaryDirectory() as folder:
        for network, (usual_s, times) in calmest.items():
            real = as_measured(problem_of(model_of(network, Path(folder))), times)
            best = schedule_with("cpsat", real, PROVING_S)
            as_run_s = [
                answer(real, planner, SEARCH_S, as_run=in_its_stages).schedule.objective
                for planner in ("stages", "auto")
            ]
            most = 2 * usual_s / sum(times[1].values())
            gains = [most, *(usual_s / s for s in (best.bound, best.objective, *as_run_s))]
            rows.append([network, _ms(usual_s), *(f"{gain:.3f}" for gain in gains)])
            print(rows[-1], flush=True)
    header = ["network", "in turn, ms", "never idle", "proven most", "found"]
    header += ["found by stages", "kept by auto"]
    return table(header, rows)


def report(found: Sequence[Line]) -> str:
    """Tables of what was run: plans beside one call after the other, in the calmest round of each
    and in the median of all rounds, and beside the simulator."""
    planned = {(each["network"], each["way"]): each for each in found if each["part"] == "plan"}
    ran = {(e["network"], e["turn"], e["way"]): e for e in found if e["part"] == "run"}
    rows: list[list[str]] = []
    thought: list[list[str]] = []
    for (network, turn, way), line in ran.items():
        usual, own = (rounds_s(ran[network, turn, each]) for each in ("sequential", way))
        told = planned.get((network, way))
        calm_s, thought_s = min(own), line["thought_s"]
        ratios = [f"{thought_s / took_s:.2f}" for took_s in (calm_s, median(own))]
        thought.append([network, way, str(turn), _ms(thought_s), *map(_ms, (calm_s, median(own)))])
        thought[-1] += ratios
        if told is not None:
            every = median(a / b for a, b in zip(usual, own, strict=True))
            promised = told["sequence_s"] / told["planned_s"]
            gains = (f"{gain:.2f}" for gain in (promised, min(usual) / calm_s, every))
            where = f"{told['stages']}, {told['beside']} of {told['calls']} calls"
            bits = "the same" if line["same"] else "OTHERS"
            rows.append([network, way, str(turn), *map(_ms, (min(usual), calm_s)), *gains])
            rows[-1] += [where, bits]
    header = ["network", "plan", "turn", "in turn, ms", "plan, ms", "promised", "gain, calmest"]
    lanes = table([*header, "gain, median", "stages of lanes", "bits"], rows)
    header = ["network", "plan", "turn", "in thought, ms", "calmest round", "median", "ratio"]
    return f"{lanes}\n\n{table([*header, 'ratio to median'], thought)}"


def rounds_s(line: Line) -> list[float]:
    """The median of each round."""
    return [median(samples) for samples in line["samples_s"]]


if __name__ == "__main__":
    main()

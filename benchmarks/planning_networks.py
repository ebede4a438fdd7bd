"""Plans of whole networks from predicted times beside plans from measured ones, and lanes that ran
beside lanes that were simulated.

    python benchmarks/planning_networks.py measure [NETWORK]… --times times.json
    python benchmarks/planning_networks.py plans [NETWORK | NETWORK+NETWORK]… --times times.json
    python benchmarks/planning_networks.py lanes [NETWORK]… --times times.json

`measure` times each call in its place in the network, with all calls on one core and with all on
all cores; networks that are in the file are left as they are. `plans` makes a plan of predicted
times (of the shipped predictors, without a database) and one of measured times, both as the verb
`plan` does, and carries both out in thought with the measured ones; *least* is the fastest of all
that was found by measured times, however unsure its gain. `lanes` has calls on one core
wherever others run beside them, and runs that plan and one call after the other in turn, beside
what the simulator says.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from pages import table
from tilewright.core.events import discard
from tilewright.core.records import Placement
from tilewright.core.scratch import scratch_folder
from tilewright.deploy.planned_network import planned_network
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.device import local_placement
from tilewright.kernels.plans import with_candidates
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.measure.network_timing import network_runner, time_places, time_together
from tilewright.measure.targeting import describable_placement, open_networks
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.lanes import in_its_stages, producers, stages_of, with_barriers
from tilewright.plan.network_scheduling import Wanted, scheduling_problem
from tilewright.plan.planning_data import PlanningRequest, planning_data
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.answering import answer, answer_in_parts
from tilewright.plan.scheduling.parts import Mode, ScheduledCall
from tilewright.plan.scheduling.plan_file import Plan, PlannedNetwork
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.simulator import simulate
from tilewright.store import open_store
from tilewright.store.base import Store
from tilewright.store.known_candidates import choose_plan, defaults

NETWORKS = (
    "squeezenet1_1", "googlenet", "inception_v3", "nasnet_mobile", "densenet201", "mobilenet_v2",
    "resnet18", "resnet50", "ssd_resnet50_512", "bert_base",
)  # fmt: skip
PAIRS = ("squeezenet1_1+googlenet", "mobilenet_v2+resnet18", "googlenet+inception_v3")
BRANCHING = ("squeezenet1_1", "googlenet", "inception_v3", "nasnet_mobile", "resnet18", "resnet50")
SEARCH_S = 10.0


class Times(msgspec.Struct, frozen=True):
    """Seconds of a network on so many cores, and of its calls in their places there; a change of
    form counts to the call that reads what it makes."""

    network_s: float
    calls_s: dict[str, float]


Known = dict[str, dict[int, Times]]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measure", "plans", "lanes"))
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200.0, help="after which measuring ends")
    given = parser.parse_args()
    path: Path = given.times
    known: Known = msgspec.json.decode(path.read_bytes(), type=Known) if path.exists() else {}
    store = open_store("memory:")
    try:
        if given.what == "measure":
            until_s = time.monotonic() + given.seconds
            for name in given.networks or NETWORKS:
                if name not in known and time.monotonic() < until_s:
                    known[name] = measured(name, store)
                    path.write_bytes(msgspec.json.encode(known))
        elif given.what == "plans":
            print(plans(given.networks or (*NETWORKS, *PAIRS), known, store))
        else:
            print(lanes(given.networks or BRANCHING, known, store))
    finally:
        store.close()


def on_all_cores(name: str, store: Store) -> tuple[PreparedNetwork, NetworkPlan]:
    """A network with the plan that it has on all cores."""
    placement = local_placement()
    network = prepare(f"zoo:{name}", ModelOptions(), placement)
    return network, choose_plan(network, store, placement, "default", MAX_ERROR)


# ------------------------------------------------------------------------------------- measuring


def measured(name: str, store: Store) -> dict[int, Times]:
    """What a network takes on one core and on all of them, in the same forms."""
    network, usual = on_all_cores(name, store)
    alone = local_placement(1)
    lanes = choose_plan(network, store, alone, "default", MAX_ERROR).lanes
    few = replace(with_candidates(usual, defaults(usual.tasks, alone, MAX_ERROR)), lanes=lanes)
    every = local_placement()
    found = {
        at.resources.threads: _times(network, plan, at)
        for plan, at in ((few, alone), (usual, every))
    }
    sums = (f"{n}: {_ms(t.network_s)}, {_ms(sum(t.calls_s.values()))}" for n, t in found.items())
    print(name, *sums, sep="; ", flush=True)
    return found


def _times(network: PreparedNetwork, plan: NetworkPlan, placement: Placement) -> Times:
    inputs = network.sample_inputs(0)
    with scratch_folder() as folder, open_networks(placement) as worker:
        worker.compile(plan, network.graph.constants, folder)
        worker.load("network", folder, plan.constant_names)
        runner = network_runner(worker, "network", inputs)
        whole_s = time_together({"network": runner})["network"].latency_s
        places_s = time_places(worker, "network", plan, inputs)
    own = {call.name for call in network.fused.calls}
    calls_s = {name: seconds for name, seconds in places_s.items() if name in own}
    before = producers(plan)
    for call in reversed(plan.calls):
        for maker in before[call.name] - own:
            calls_s[call.name] = calls_s.get(call.name, 0.0) + places_s.pop(maker, 0.0)
    return Times(network_s=whole_s, calls_s=calls_s)


# --------------------------------------------------------------------------------- what they tell


def problem_of(names: str, store: Store, known: Known | None = None) -> SchedulingProblem:
    """The problem of networks at a time on this CPU, with predicted times or with known ones."""
    request = PlanningRequest(
        options=ModelOptions(), settings="default", max_error=MAX_ERROR, fewer_cores=True
    )
    here = {"llvm": describable_placement(local_placement())}
    each = names.split("+")
    data = [planning_data(f"zoo:{name}", here, request, store, discard) for name in each]
    problem = scheduling_problem(data, Wanted())
    if known is None:
        return problem
    of_network = dict(zip(dict.fromkeys(c.network for c in problem.calls), each, strict=True))
    calls = tuple(_as_measured(call, known[of_network[call.network]]) for call in problem.calls)
    return replace(problem, calls=calls)


def _as_measured(call: ScheduledCall, times: Mapping[int, Times]) -> ScheduledCall:
    name = call.name.removeprefix(f"{call.network}/")
    modes = tuple(_lasting(mode, times[mode.cores].calls_s[name]) for mode in call.modes)
    return replace(call, modes=modes, task="")


def _lasting(mode: Mode, seconds: float) -> Mode:
    return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds, source="exact")


def plans(named: Sequence[str], known: Known, store: Store) -> str:
    """A row for each network, or those beside each other: what its plan of predicted times and its
    plan of measured ones take by measured times."""
    rows: list[list[str]] = []
    for names in named:
        predicted, real = problem_of(names, store), problem_of(names, store, known)
        as_run = None if "+" in names else in_its_stages
        promised, best = (
            answer_in_parts(each, None, SEARCH_S).schedule
            if as_run is None
            else answer(each, None, SEARCH_S, as_run=as_run).schedule
            for each in (predicted, real)
        )
        found = schedule_with("auto", real, SEARCH_S)
        kept, unsure = (
            simulate(real, each) if as_run is None else as_run(real, each)
            for each in (promised, found)
        )
        sequence = schedule_with("sequential", real)
        least = min(each.objective for each in (best, unsure, sequence, kept))
        told = (sequence, promised, best, kept)
        ratios = (f"{kept.objective / each:.3f}" for each in (best.objective, least))
        rows.append([names.replace("+", ", "), *(_ms(each.objective) for each in told), *ratios])
        print(rows[-1], flush=True)
    header = ["network", "sequence", "promised", "best", "kept", "kept / best", "kept / least"]
    return table(header, rows)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def lanes(networks: Sequence[str], known: Known, store: Store) -> str:
    """A row for each network: what its plan of lanes takes in thought and really."""
    rows: list[list[str]] = []
    for name in networks:
        problem = problem_of(name, store, known)
        usual = on_all_cores(name, store)[1]
        on_lanes, planned = lane_plan(problem, usual)
        in_stages = with_barriers(on_lanes, stages_of(usual, planned.slots))
        named = PlannedNetwork(name=name, model=f"zoo:{name}", options={}, settings="default")
        plan = Plan(problem=on_lanes, schedule=planned, networks=(named,))
        network = planned_network(plan, store)
        drawn = prepare(f"zoo:{name}", ModelOptions(), local_placement()).sample_inputs(0)
        network(*drawn)
        pairs = [
            (schedule_with("sequential", problem).objective, network.times_s.get("sequential")),
            (simulate(in_stages, planned).objective, network.times_s.get("parallel")),
        ]
        rows.append([name])
        for thought_s, ran_s in pairs:
            real = ("–", "–") if ran_s is None else (_ms(ran_s), f"{thought_s / ran_s:.2f}")
            rows[-1] += [_ms(thought_s), *real]
        print(rows[-1], flush=True)
    header = ["network", "sequence, simulated", "run", "ratio", "lanes, simulated", "run", "ratio"]
    return table(header, rows)


def lane_plan(problem: SchedulingProblem, usual: NetworkPlan) -> tuple[SchedulingProblem, Schedule]:
    """The problem with one mode for each call, of one core wherever something runs beside it, and a
    plan of it."""
    alone: set[str] = set()
    while True:
        calls = map(partial(_with_cores, alone=alone), problem.calls)
        lanes = replace(problem, calls=tuple(calls))
        planned = schedule_with("heft", lanes, SEARCH_S)
        found = {each for each in stages_of(usual, planned.slots) if isinstance(each, str)}
        if found <= alone:
            return lanes, planned
        alone |= found


def _with_cores(call: ScheduledCall, alone: set[str]) -> ScheduledCall:
    cores = [mode.cores for mode in call.modes]
    wanted = max(cores) if call.name in alone else min(cores)
    return replace(call, modes=tuple(m for m in call.modes if m.cores == wanted))


if __name__ == "__main__":
    main()

"""The child process that compiles a network for so many cores, one call after the other or in
lanes, and runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from tilewright.compiler.execute import LoadedNetwork, set_threads
from tilewright.core.child import serve, wait_until_asleep
from tilewright.core.events import discard
from tilewright.core.records import Placement
from tilewright.core.schedules import PLAN_FILE
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.measure.network_timing import time_places
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.call_times import with_readers
from tilewright.plan.lanes import LaneCalls, Stage, in_stages, stages_of, with_barriers
from tilewright.plan.network_scheduling import Wanted, scheduling_problem
from tilewright.plan.planning_data import PlanningRequest, placements_of, planning_data
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.parts import Mode, ScheduledCall
from tilewright.plan.scheduling.plan_file import (
    Plan,
    PlannedNetwork,
    read_plan,
    write_plan,
)
from tilewright.plan.scheduling.planning import schedule_with
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.simulator import simulate
from tilewright.store import open_store
from tilewright.store.known_candidates import choose_plan

Times = dict[int, dict[str, float]]
"""Seconds of each call by its number of cores."""
_REST_S = 0.5
_LEAST_RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A network that runs, its plan of one call after the other and, if it is in lanes, what was
    planned and the stages of that."""

    network: PreparedNetwork
    usual: NetworkPlan
    plan: Plan | None
    stages: Sequence[Stage]
    loaded: LoadedNetwork


_held: list[Compiled] = []


def kept_plan(name: str, cores: int, widths: Sequence[int], folder: Path) -> Plan:
    """The plan of a network on so many cores, from what is predicted, in lanes of these widths:
    what the folder holds, or a new one, which is written there."""
    if (folder / PLAN_FILE).exists():
        return read_plan(folder)
    placement = placements_of(["llvm"], None, cores)["llvm"]
    problem = in_widths(_problem(name, placement), widths)
    named = PlannedNetwork(name=name, model=f"zoo:{name}", options={}, settings="default")
    plan = Plan(problem=problem, schedule=schedule_with("stages", problem), networks=(named,))
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(plan, folder / PLAN_FILE)
    return plan


def in_widths(problem: SchedulingProblem, widths: Iterable[int]) -> SchedulingProblem:
    """The problem with calls on no other numbers of cores; one that may have none of these keeps
    the most that it has."""
    calls = tuple(_with_widths(call, {*widths}) for call in problem.calls)
    return replace(problem, calls=calls)


def _with_widths(call: ScheduledCall, widths: set[int]) -> ScheduledCall:
    most = max(mode.cores for mode in call.modes)
    modes = tuple(mode for mode in call.modes if mode.cores in widths | {most})
    return replace(call, task="", modes=modes)


def begin(name: str, cores: int, widths: Sequence[int], folder: str) -> dict[str, Any]:
    """Compile a network for so many cores, in lanes of these widths if any, by the plan that the
    folder holds; what was planned."""
    began_s = perf_counter()
    placement = placements_of(["llvm"], None, cores)["llvm"]
    network = prepare(f"zoo:{name}", ModelOptions(), placement)
    usual = choose_plan(network, open_store("memory:"), placement, "default", MAX_ERROR)
    network_plan, plan, stages = usual, None, list[Stage]()
    about: dict[str, Any] = {"calls": len(usual.calls)}
    if widths:
        plan = kept_plan(name, cores, widths, Path(folder))
        stages = stages_of(usual, plan.schedule.slots)
        network_plan = in_stages(usual, stages)
        sides = [stage for stage in stages if not isinstance(stage, str)]
        about |= {
            "sequence_s": schedule_with("sequential", plan.problem).objective,
            "planned_s": plan.schedule.objective,
            "stages": [
                each if isinstance(each, str) else list(map(asdict, each)) for each in stages
            ],
            "lanes": max(map(len, sides), default=1),
            "wide": len(sides),
        }
    constants = network.fused.graph.constants
    loaded = LoadedNetwork.compiled(network_plan, placement.target, constants)
    _held[:] = [Compiled(network=network, usual=usual, plan=plan, stages=stages, loaded=loaded)]
    return {**about, "begin_s": perf_counter() - began_s}


def _problem(name: str, placement: Placement) -> SchedulingProblem:
    """With predicted times on 1, 2, 4 … cores, of predictors as shipped."""
    request = PlanningRequest(ModelOptions(), "default", MAX_ERROR, fewer_cores=True)
    store = open_store("memory:")
    data = planning_data(f"zoo:{name}", {"llvm": placement}, request, store, discard)
    return scheduling_problem([data], Wanted())


@cache
def _on(cores: int, cpus: tuple[int, ...]) -> ThreadPoolExecutor:
    """A thread whose pool has so many threads."""
    return ThreadPoolExecutor(1, initializer=set_threads, initargs=(cores, cpus))


def called(cores: int, cpus: Sequence[int], function: Any) -> Any:
    """What a function answers in a thread whose pool has so many threads, none of which spins
    afterwards."""
    found = _on(cores, tuple(cpus)).submit(function).result()
    wait_until_asleep(_REST_S)
    return found


def outputs(cores: int, cpus: Sequence[int]) -> list[list[float]]:
    """What the network gives on drawn inputs."""
    each = _held[0]
    inputs = each.network.sample_inputs(0)
    found = called(cores, cpus, lambda: each.loaded(inputs))
    return [array.reshape(-1).tolist() for array in found]


def time(cores: int, cpus: Sequence[int], round_s: float) -> list[float]:
    """Seconds of each run in a round."""
    each = _held[0]
    inputs = each.network.sample_inputs(0)

    def timed() -> list[float]:
        once_s = each.loaded.time(inputs, 1, 1)[0]
        return each.loaded.time(inputs, max(_LEAST_RUNS, int(round_s / once_s)), 0)

    return called(cores, cpus, timed)


def calls(cores: int, cpus: Sequence[int], repeats: int) -> dict[str, float]:
    """Seconds of each call in its place in the network, which is not in lanes; a change of form
    counts to the call that reads what it makes."""
    each = _held[0]
    inputs = each.network.sample_inputs(0)

    class Here:
        def time_calls(self, _name: str, _inputs: Any, **_: Any) -> list[tuple[str, float]]:
            return each.loaded.time_calls(inputs, repeats)

    here: Any = Here()
    places_s = called(cores, cpus, lambda: time_places(here, "", each.usual, inputs))
    return with_readers(each.usual, places_s, {call.name for call in each.network.fused.calls})


def simulated(times: Times) -> float:
    """Seconds of the plan in lanes where calls take these times."""
    each = _held[0]
    if each.plan is None:
        raise ValueError("the network is not in lanes")
    measured = as_measured(each.plan.problem, times)
    return simulate(with_barriers(measured, each.stages), each.plan.schedule).objective


def as_measured(problem: SchedulingProblem, times: Times) -> SchedulingProblem:
    """The problem with measured times."""

    def lasting(call: ScheduledCall, mode: Mode) -> Mode:
        seconds = times[mode.cores][call.name]
        return replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds, source="exact")

    calls = [
        replace(call, task="", modes=tuple(lasting(call, mode) for mode in call.modes))
        for call in problem.calls
    ]
    return replace(problem, calls=tuple(calls))


def stages_from(told: Sequence[Any]) -> list[Stage]:
    """Stages as `begin` told them."""
    return [s if isinstance(s, str) else [LaneCalls(**lane) for lane in s] for s in told]


if __name__ == "__main__":
    handlers = (begin, outputs, time, calls, simulated)
    serve({handler.__name__: handler for handler in handlers})

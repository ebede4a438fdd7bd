"""What handing a request over to a process on other cores takes, as plans in parts do it.

    core 0   fc1 ┐       ┌ fc3          core 0   fc1 fc2 fc3
    core 1       └─ fc2 ─┘              two hand-offs less

A small network runs in turn with each of its calls in another process than the one before, and
with all of them in one. Its tensors go through the slots of shared memory as those of any plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from time import perf_counter

from tilewright.core.errors import TilewrightError
from tilewright.core.events import discard
from tilewright.core.processes import ChildError
from tilewright.core.records import Placement
from tilewright.deploy.planned_network import HERE
from tilewright.graph.fuse import TaskCall
from tilewright.graph.inputs import random_inputs
from tilewright.graph.network import Array
from tilewright.measure.targeting import in_this_process
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.plan.scheduling.parts import Mode, ScheduledCall, ScheduleDevice, Wait
from tilewright.plan.scheduling.plan_file import Plan, PlannedNetwork
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot
from tilewright.serving.plan_serving import PlannedRun
from tilewright.store import open_store

_MODEL, _NAME = "zoo:mlp", "mlp"
_PLACED = (0, 1, 0), (0, 0, 0)
"""On which cores the calls are: as often handed over as can be, and never."""
_HANDOFFS, _CORES = 2, 2
_ROUNDS, _RUNS = 21, 10
_CALL_S = 1e-5


def part_handoffs(placement: Placement) -> list[float]:
    """Seconds of a hand-off between processes on the first two cores of this machine, round by
    round; empty where there are fewer or it is another machine's, and where the network did not
    run."""
    if len(placement.binding.cpus) < _CORES or not in_this_process(placement):
        return []
    try:
        network = prepare(_MODEL, ModelOptions(), placement)
        inputs = random_inputs(network.model.graph, 0)
        apart, together = (toy_plan(network.fused.calls, cores) for cores in _PLACED)
        with (
            open_store("memory:") as store,
            PlannedRun(apart, store, "parallel", None, discard) as longer,
            PlannedRun(together, store, "parallel", None, discard) as shorter,
        ):
            for each in (longer, shorter):
                _run_s(each, inputs)
            rounds = [(_run_s(longer, inputs), _run_s(shorter, inputs)) for _ in range(_ROUNDS)]
    except (TilewrightError, ChildError):
        return []
    return [(longer_s - shorter_s) / _HANDOFFS for longer_s, shorter_s in rounds]


def _run_s(network: PlannedRun, inputs: Mapping[str, Array]) -> float:
    began_s = perf_counter()
    for _ in range(_RUNS):
        network.run(inputs)
    return (perf_counter() - began_s) / _RUNS


def toy_plan(calls: Sequence[TaskCall], cores: Sequence[int]) -> Plan:
    """The network with each of its calls on one of these cores, one after the other."""
    mode = Mode(device=HERE, latency_s=_CALL_S, low_s=_CALL_S, high_s=_CALL_S, kernel=_NAME)
    names = [call.name for call in calls]
    problem = SchedulingProblem(
        devices=(ScheduleDevice(name=HERE, cores=_CORES),),
        calls=tuple(
            ScheduledCall(name=call.name, network=_NAME, task=call.workload.key, modes=(mode,))
            for call in calls
        ),
        waits=tuple(Wait(before=before, after=after) for before, after in pairwise(names)),
    )
    slots = tuple(
        Slot(call=name, mode=0, begin_s=n * _CALL_S, end_s=(n + 1) * _CALL_S, cores=(core,))
        for n, (name, core) in enumerate(zip(names, cores, strict=True))
    )
    return Plan(
        problem=problem,
        schedule=Schedule(planner="by hand", slots=slots, objective=len(slots) * _CALL_S),
        networks=(PlannedNetwork(name=_NAME, model=_MODEL),),
    )

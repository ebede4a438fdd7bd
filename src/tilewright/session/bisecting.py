"""Finding the task that makes a network wrong, by bisection over truncated networks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tilewright.core.records import Candidate, Device
from tilewright.graph.arrange import arrange
from tilewright.graph.evaluate import run_fused
from tilewright.graph.fused import FusedNetwork, TaskCall
from tilewright.graph.layout import PLAIN
from tilewright.graph.network import Array
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.blueprint import TaskKey, blueprint, task_key
from tilewright.kernels.layouts import choose_layouts
from tilewright.measure.networks import NetworkWorker
from tilewright.session.checking import compare_outputs
from tilewright.session.preparation import PreparedNetwork
from tilewright.tune.space import default_candidate

_TOLERANCE = 1e-4


def name_culprit(
    network: PreparedNetwork,
    chosen: Mapping[TaskKey, Candidate],
    device: Device,
    inputs: Mapping[str, Array],
    folder: Path,
) -> str:
    """A sentence naming the first task whose result is wrong.

    Each probe compiles the network up to one call and compares that call's result with numpy.
    """
    fused = network.arrangement.network
    calls = fused.calls
    if any(step.operator == "opaque" for call in calls for step in call.workload.steps):
        return "the first wrong task cannot be told: the network has operators without a reference"
    expected = run_fused(fused, inputs, every=True)
    right, wrong = 0, len(calls) - 1
    with NetworkWorker(device) as worker:
        while right < wrong:
            middle = (right + wrong) // 2
            if _agrees(worker, fused, middle, (chosen, device, inputs, expected, folder)):
                right = middle + 1
            else:
                wrong = middle
        if _agrees(worker, fused, wrong, (chosen, device, inputs, expected, folder)):
            return "no truncated network is wrong: the fault lies between the tasks"
    return f"the first wrong task is {_described(calls[wrong])}"


def _described(call: TaskCall) -> str:
    return f"{call.name!r} ({call.workload.key}, nodes {', '.join(map(repr, call.nodes[:4]))})"


def _probed(fused: FusedNetwork, last: int, device: Device) -> tuple[FusedNetwork, dict[str, str]]:
    """The calls up to `last` in the whole network's layouts, so that every kernel is the suspected
    one, and a copy of the last result as the only output."""
    tensor = fused.calls[last].output
    probe = tensor
    while probe in fused.graph.types:
        probe += "'"
    kind = fused.graph.types[tensor]
    copy = TaskCall(
        name=probe,
        workload=Workload(
            arguments=(Argument(type=kind),), steps=(Step(operator="identity", inputs=(0,)),)
        ),
        inputs=(tensor,),
        output=probe,
        nodes=(),
    )
    graph = replace(fused.graph, outputs=(probe,), types={**fused.graph.types, probe: kind})
    layouts = {**choose_layouts(fused, device), probe: PLAIN}
    return FusedNetwork(graph=graph, calls=(*fused.calls[: last + 1], copy)), layouts


def _agrees(
    worker: NetworkWorker,
    fused: FusedNetwork,
    last: int,
    context: tuple[
        Mapping[TaskKey, Candidate], Device, Mapping[str, Array], Mapping[str, Array], Path
    ],
) -> bool:
    chosen, device, inputs, expected, folder = context
    tensor = fused.calls[last].output
    shorter, layouts = _probed(fused, last, device)
    arrangement = arrange(shorter, layouts)
    assignment: dict[TaskKey, Candidate] = {}
    for item in arrangement.calls:
        key = task_key(item)
        known = chosen.get(key)
        assignment[key] = known or default_candidate(item.call.workload, item.layouts, device)[0]
    plan = blueprint(arrangement, assignment)
    # a path of its own: the loader takes a library it knows by path for the one it has loaded
    place = folder / f".bisect-{last}"
    try:
        worker.compile(plan, shorter.graph.constants, place)
        worker.load("probe", place, [c.parameter.name for c in plan.constants])
        ours = worker.run("probe", [inputs[name] for name in shorter.graph.inputs])
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return compare_outputs(ours, [expected[tensor]], [tensor]).max_rel_error <= _TOLERANCE

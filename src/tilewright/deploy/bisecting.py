"""Finding the task that makes a network wrong, by bisection over truncated networks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.core.records import Candidate, Placement
from tilewright.graph.arrange import arrange
from tilewright.graph.conversions import copying
from tilewright.graph.evaluate import run_fused
from tilewright.graph.fused import FusedNetwork, TaskCall
from tilewright.graph.network import Array
from tilewright.graph.plan import lane_of
from tilewright.graph.tasks import TaskKey, task_key
from tilewright.kernels.plans import sequential_plan
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import compare_outputs
from tilewright.measure.measurers import open_networks
from tilewright.measure.networks import NetworkRunner
from tilewright.models.prepared import PreparedNetwork

ROUNDING = 1e-4


def name_culprit(
    network: PreparedNetwork,
    chosen: Mapping[TaskKey, Candidate],
    placement: Placement,
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
    probe = _Probe(
        network=network,
        chosen=chosen,
        placement=placement,
        inputs=inputs,
        expected=run_fused(fused, inputs, every=True),
        folder=folder,
    )
    right, wrong = 0, len(calls) - 1
    with open_networks(placement) as worker:
        while right < wrong:
            middle = (right + wrong) // 2
            if probe.agrees(worker, middle):
                right = middle + 1
            else:
                wrong = middle
        if probe.agrees(worker, wrong):
            return "no truncated network is wrong: the fault lies between the tasks"
    return f"the first wrong task is {_described(calls[wrong])}"


def _described(call: TaskCall) -> str:
    return f"{call.name!r} ({call.workload.key}, nodes {', '.join(map(repr, call.nodes[:4]))})"


def _probed(fused: FusedNetwork, last: int) -> FusedNetwork:
    """The calls up to `last` and a copy of the last result as the only output, plain."""
    tensor = fused.calls[last].output
    probe = tensor
    while probe in fused.graph.types:
        probe += "'"
    kind = fused.graph.types[tensor]
    copy = TaskCall(name=probe, workload=copying(kind), inputs=(tensor,), output=probe, nodes=())
    graph = replace(fused.graph, outputs=(probe,), types={**fused.graph.types, probe: kind})
    return FusedNetwork(graph=graph, calls=(*fused.calls[: last + 1], copy))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """The network's beginnings, in the whole network's layouts, so that every kernel is the
    suspected one. `expected` holds every tensor as numpy has it."""

    network: PreparedNetwork
    chosen: Mapping[TaskKey, Candidate]
    placement: Placement
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    folder: Path

    def agrees(self, worker: NetworkRunner, last: int) -> bool:
        """Whether the network up to call `last` gives what numpy gives."""
        whole = self.network.arrangement
        tensor = whole.network.calls[last].output
        shorter = _probed(whole.network, last)
        arrangement = arrange(shorter, whole.forms)
        assignment: dict[TaskKey, Candidate] = {}
        for item in arrangement.calls:
            key, workload = task_key(item), item.call.workload
            known = self.chosen.get(key)
            assignment[key] = known or default_candidate(workload, item.forms, self.placement)[0]
        plan = sequential_plan(arrangement, assignment, lane_of(self.placement))
        # a path of its own: the loader takes a library it knows by path for the one it has loaded
        place = self.folder / f".bisect-{last}"
        try:
            worker.compile(plan, shorter.graph.constants, place)
            worker.load("probe", place, [c.name for c in plan.constants])
            ours = worker.run("probe", [self.inputs[name] for name in shorter.graph.inputs])
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return compare_outputs(ours, [self.expected[tensor]], [tensor]).max_rel_error <= ROUNDING

"""Finding the call that makes a network wrong, by bisection over beginnings of its plan."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.forms import PLAIN
from tilewright.core.records import Placement
from tilewright.graph import arrange, carry_out
from tilewright.graph.network import Array, Graph
from tilewright.graph.plan import NetworkPlan, PlannedCall
from tilewright.kernels import plans, spaces
from tilewright.kernels.base import MIXED, SINGLE
from tilewright.kernels.codes import rounds_to_codes
from tilewright.measure import checking, targeting
from tilewright.measure.networks import NetworkRunner
from tilewright.models.loaded import ON_CODES

CODED = "codes of eight bits"
"""Networks that came so: where a code becomes its neighbour, each later rounding makes more of it,
and two right results are as far apart as two roundings of the network."""
ROUNDING = {
    "float32": 1e-4,
    "bfloat16": 0.05,
    "float16": 0.01,
    "auto": 0.05,
    "int8": 1.0,
    "int8-weights": 0.1,
    CODED: 0.1,
}
"""What rounding can do to results, relative to the largest, by precision."""
_PROBE = "probe"


def coarsest_rounding(graph: Graph, precision: str, *, put_on_codes: bool) -> str:
    """What makes most of the error of a network in a precision, a key of `ROUNDING`: codes that it
    was put on where types are chosen, or came with, else the precision."""
    if not rounds_to_codes(graph) or precision not in (*SINGLE, MIXED):
        return precision
    return ON_CODES if put_on_codes else CODED


def name_culprit(
    plan: NetworkPlan,
    constants: Mapping[str, Array],
    placement: Placement,
    inputs: Mapping[str, Array],
    folder: Path,
) -> str:
    """A sentence naming the first call whose result is wrong.

    Each probe compiles the plan up to one call and compares that call's result with numpy.
    """
    if any(step.operator == "opaque" for call in plan.calls for step in call.workload.steps):
        return "the first wrong task cannot be found: the network has operators without a reference"
    probe = _Probe(
        plan=plan,
        constants=constants,
        placement=placement,
        inputs=inputs,
        expected=carry_out.results_of_calls(plan, inputs, constants),
        folder=folder,
    )
    right, wrong = 0, len(plan.calls) - 1
    with targeting.open_networks(placement) as worker:
        while right < wrong:
            middle = (right + wrong) // 2
            if probe.agrees(worker, middle):
                right = middle + 1
            else:
                wrong = middle
        if probe.agrees(worker, wrong):
            return "the network is right up to every single task: the fault lies between the tasks"
    return f"the first wrong task is {_described(plan.calls[wrong])}"


def _described(call: PlannedCall) -> str:
    return f"{call.name!r} ({call.workload.key}, nodes {', '.join(map(repr, call.nodes[:4]))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """The network's beginnings, each followed by a copy of its last result, in plain form, as the
    only output: every kernel is the suspected one. `expected` are the results of calls, by name."""

    plan: NetworkPlan
    constants: Mapping[str, Array]
    placement: Placement
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    folder: Path

    def agrees(self, worker: NetworkRunner, last: int) -> bool:
        """Whether the network up to call `last` gives what numpy gives."""
        shorter = self._beginning(last)
        # a path of its own: the loader takes a library it knows by path for the one it has loaded
        place = self.folder / f".bisect-{last}"
        try:
            worker.compile(shorter, self.constants, place)
            worker.load(_PROBE, place, shorter.constant_names)
            ours = worker.run(_PROBE, [self.inputs[name] for name in shorter.inputs])
        finally:
            shutil.rmtree(place, ignore_errors=True)
        name = self.plan.calls[last].name
        check = checking.compare_outputs(ours, [self.expected[name]], [name])
        return check.max_rel_error <= ROUNDING[self.placement.precision]

    def _beginning(self, last: int) -> NetworkPlan:
        suspect = self.plan.calls[last]
        taken = {*self.plan.tensors, *(call.name for call in self.plan.calls)}
        output = _PROBE
        while output in taken:
            output += "'"
        workload = arrange.copying(suspect.workload.result)
        copy = PlannedCall(
            name=output,
            workload=workload,
            candidate=spaces.default_candidate(
                workload, (suspect.candidate.forms[-1], PLAIN), self.placement
            )[0],
            inputs=(suspect.output,),
            output=output,
            lane=suspect.lane,
        )
        return plans.with_calls(self.plan, (*self.plan.calls[: last + 1], copy), output)

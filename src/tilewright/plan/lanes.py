"""Plans whose calls run side by side, from one whose calls run one after the other.

    conv1, (a1 a2 | b1), concat   →   main: conv1, concat; core 0: a1, a2; core 1: b1

A *stage* is a call of the main lane, which has all cores, or several calls in lanes of one core
each. A stage begins when the one before has ended: that is what the calls wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, product
from math import inf

from tilewright.core.errors import InternalError
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources
from tilewright.graph.inputs import argument_uses
from tilewright.graph.plan import MAIN, Lane, NetworkPlan, PlannedCall
from tilewright.kernels.base import OtherBuilder
from tilewright.kernels.plans import with_each
from tilewright.kernels.registry import implementation
from tilewright.plan.scheduling.parts import Wait
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Slot

Stage = str | Sequence[Sequence[str]]
"""The name of a call, or those of each lane's calls."""

ONE_CORE = Resources(cores=1, threads=1)


def core_lane(number: int) -> str:
    """The name of a lane of one core."""
    return f"core {number}"


def may_run_beside(call: PlannedCall) -> bool:
    """Whether a call may be in a lane of one core: its kernel is in the compiled network, its shape
    is known, and it reads no indices, which are checked before a stage begins."""
    inside = not isinstance(implementation(call.candidate.implementation), OtherBuilder)
    checked = any(use.port not in call.constants for use in argument_uses(call.workload))
    return inside and call.workload.result.is_static and not checked


def in_stages(
    plan: NetworkPlan, stages: Sequence[Stage], on_one_core: Mapping[str, Candidate]
) -> NetworkPlan:
    """The plan with its calls in these stages, which name each of them once and keep every wait;
    `on_one_core` has the candidates of those beside others, in the forms that they have."""
    widest = max((len(each) for each in stages if not isinstance(each, str)), default=0)
    main = plan.only_lane
    beside = {core_lane(n): Lane(device=main.device, resources=ONE_CORE) for n in range(widest)}
    chosen = with_each(replace(plan, lanes={MAIN: main}), on_one_core)
    calls = {call.name: call for call in chosen.calls}
    placed, last = list[PlannedCall](), dict[str, str]()
    for stage in stages:
        lanes = {MAIN: [stage]} if isinstance(stage, str) else _named(stage)
        alone = [n for names in lanes.values() for n in names if not may_run_beside(calls[n])]
        if MAIN not in lanes and alone:
            raise InternalError(f"call {alone[0]!r} cannot run beside others")
        ended = {name: lane for lane, name in last.items()}
        last = dict[str, str]()
        for lane, names in lanes.items():
            for name in names:
                after = tuple(n for n in ended if ended[n] != lane) if name == names[0] else ()
                placed.append(replace(calls[name], lane=lane, after=after))
            last[lane] = names[-1]
    return replace(chosen, calls=tuple(placed), lanes={MAIN: main, **beside})


def stages_of(plan: NetworkPlan, slots: Iterable[Slot]) -> list[Stage]:
    """The stages in which a plan's calls run as nearly as can be as a schedule says: a call on one
    core is beside others, one on several has all cores. Calls that the schedule leaves out, such as
    changes of form, run on all cores before the first one that reads what they write."""
    making = _Stages(waits=producers(plan), calls={call.name: call for call in plan.calls})
    for slot in sorted(slots, key=lambda slot: (slot.begin_s, slot.end_s)):
        making.place(slot.call, slot)
    for call in plan.calls:
        making.place(call.name, None)
    making.close()
    return making.found


def with_barriers(problem: SchedulingProblem, stages: Iterable[Stage]) -> SchedulingProblem:
    """The problem of running stages one after the other: what is in one waits for all that is in
    the one before, so that a schedule takes in thought what it takes when it is run."""
    lanes = ([[stage]] if isinstance(stage, str) else stage for stage in stages)
    inside = [[n for lane in each for n in lane if n in problem.numbers] for each in lanes]
    there = {(wait.before, wait.after) for wait in problem.waits}
    barriers = (
        Wait(before=before, after=after)
        for pair in pairwise(filter(None, inside))
        for before, after in product(*pair)
        if (before, after) not in there
    )
    place = {name: number for number, name in enumerate(chain.from_iterable(inside))}
    calls = sorted(problem.calls, key=lambda call: place.get(call.name, -1))
    return replace(problem, calls=tuple(calls), waits=(*problem.waits, *barriers))


def producers(plan: NetworkPlan) -> dict[str, set[str]]:
    """The calls that wrote before what each call reads."""
    found: dict[str, set[str]] = {}
    wrote: dict[str, list[PlannedCall]] = {}
    for call in plan.calls:
        read = [plan.tensors[t] for n, t in enumerate(call.inputs) if n not in call.constants]
        found[call.name] = {
            other.name
            for tensor in read
            for other in wrote.get(tensor.root, ())
            if tensor.overlaps(plan.tensors[other.output])
        }
        wrote.setdefault(plan.tensors[call.output].root, []).append(call)
    return found


@dataclass(slots=True, kw_only=True)
class _Stages:
    """Stages that are made call by call; `open` are the calls of the last one with their slots, by
    rising begin."""

    waits: Mapping[str, set[str]]
    calls: Mapping[str, PlannedCall]
    found: list[Stage] = field(default_factory=list[Stage])
    open: dict[str, Slot] = field(default_factory=dict[str, Slot])
    placed: set[str] = field(default_factory=set[str])

    def place(self, name: str, slot: Slot | None) -> None:
        """Put a call behind what it waits for, beside others where its slot has one core."""
        if name not in self.calls or name in self.placed:
            return
        for before in sorted(self.waits[name] - self.placed):
            self.place(before, None)
        self.placed.add(name)
        if slot is None or len(slot.cores) > 1 or not may_run_beside(self.calls[name]):
            self.close()
            self.found.append(name)
            return
        awaited = [self.open[n] for n in self.waits[name] if n in self.open]
        ends = [each.end_s for each in awaited if each.cores != slot.cores]
        if ends:
            self.close(max(ends))
        self.open[name] = slot

    def close(self, until_s: float = inf) -> None:
        """End the last stage, with what begins before `until_s`; what is beside nothing runs on
        all cores."""
        lanes: dict[int, list[str]] = {}
        for name in [name for name, slot in self.open.items() if slot.begin_s < until_s]:
            lanes.setdefault(self.open.pop(name).cores[0], []).append(name)
        if len(lanes) > 1:
            self.found.append([lanes[core] for core in sorted(lanes)])
        else:
            self.found.extend(name for names in lanes.values() for name in names)


def _named(stage: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {core_lane(number): list(names) for number, names in enumerate(stage) if names}

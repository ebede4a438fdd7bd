"""Plans whose calls run side by side, from one whose calls run one after the other.

    conv1, (a1 a2 | b1), concat   →   main: conv1, concat; cores 0 to 2: a1, a2; core 3: b1

A *stage* is a call of the main lane, which has all cores, or several calls in lanes that share
them. A stage begins when the one before has ended: that is what the calls wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, product
from math import inf

from tilewright.core.errors import InternalError
from tilewright.core.targets import Resources
from tilewright.graph.inputs import argument_uses
from tilewright.graph.plan import MAIN, Lane, NetworkPlan, PlannedCall
from tilewright.kernels.base import OtherBuilder
from tilewright.kernels.registry import implementation
from tilewright.plan.scheduling.parts import Wait
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule, Slot
from tilewright.plan.scheduling.simulator import simulate


@dataclass(frozen=True, slots=True)
class LaneCalls:
    """The names of a lane's calls in a stage, and how many cores it has there."""

    calls: Sequence[str]
    cores: int = 1


Stage = str | Sequence[LaneCalls]
"""The name of a call, or what each lane does."""


def names_in(stage: Stage) -> list[str]:
    """The calls of a stage, lane by lane."""
    return [stage] if isinstance(stage, str) else [n for lane in stage for n in lane.calls]


def lanes_in(stage: Stage, cores: int) -> Sequence[LaneCalls]:
    """What each lane does in a stage: a call by itself has all of so many cores."""
    return [LaneCalls([stage], cores)] if isinstance(stage, str) else stage


def cores_in(stages: Iterable[Stage], cores: int) -> dict[str, int]:
    """How many of so many cores each call of these stages has."""
    lanes = (lane for stage in stages for lane in lanes_in(stage, cores))
    return {name: lane.cores for lane in lanes for name in lane.calls}


def lane_name(first: int, cores: int) -> str:
    """The name of a lane that has so many cores from a first one on."""
    return f"core {first}" if cores == 1 else f"cores {first} to {first + cores - 1}"


def may_run_beside(call: PlannedCall) -> bool:
    """Whether a call may be in a lane: its kernel is in the compiled network, its shape is known,
    and it reads no indices, which are checked before a stage begins."""
    inside = not isinstance(implementation(call.candidate.implementation), OtherBuilder)
    checked = any(use.port not in call.constants for use in argument_uses(call.workload))
    return inside and call.workload.result.is_static and not checked


def in_stages(plan: NetworkPlan, stages: Sequence[Stage]) -> NetworkPlan:
    """The plan with its calls in these stages, which name each of them once and keep every wait.
    Each call has the kernel in its lane that it has on all cores."""
    main = plan.only_lane
    lanes, calls = {MAIN: main}, {call.name: call for call in plan.calls}
    placed, last = list[PlannedCall](), dict[str, str]()
    for stage in stages:
        inside = {MAIN: [stage]} if isinstance(stage, str) else _named(stage, main, lanes)
        alone = [n for n in names_in(stage) if MAIN not in inside and not may_run_beside(calls[n])]
        if alone:
            raise InternalError(f"call {alone[0]!r} cannot run beside others")
        ended = {name: lane for lane, name in last.items()}
        last = dict[str, str]()
        # lanes that begin behind another one's end go first: that ends the region before
        for lane, names in sorted(inside.items(), key=lambda each: {*ended.values()} == {each[0]}):
            for name in names:
                after = tuple(n for n in ended if ended[n] != lane) if name == names[0] else ()
                placed.append(replace(calls[name], lane=lane, after=after))
            last[lane] = names[-1]
    return replace(plan, calls=tuple(placed), lanes=lanes)


def stages_of(plan: NetworkPlan, slots: Iterable[Slot], *, keep: bool = False) -> list[Stage]:
    """The stages in which a plan's calls run as nearly as can be as a schedule says: a call on some
    cores is beside others, and has all of them where there are none, unless calls are to `keep`
    theirs. Calls that the schedule leaves out, such as changes of form, run on all cores before the
    first one that reads what they write."""
    cores = plan.only_lane.resources.threads
    beside = {call.name: may_run_beside(call) for call in plan.calls}
    return _Stages(waits=producers(plan), beside=beside, cores=cores, keep=keep).of(slots)


def keeps_cores(problem: SchedulingProblem) -> bool:
    """Whether calls that are beside nothing keep the cores that they were planned for: more may
    cost what the plan was to save, or break a limit."""
    capped = any(device.power_w is not None for device in problem.devices)
    return problem.objective == "energy" or problem.limits.energy_j is not None or capped


def foreseen_stages(problem: SchedulingProblem, slots: Iterable[Slot]) -> list[Stage]:
    """The same as far as the problem of a network on a CPU tells it, before the network has a plan:
    it knows no changes of form, and takes what may have fewer cores to run beside others."""
    names = [call.name for call in problem.calls]
    waits = {
        name: {names[number] for number, _ in before}
        for name, before in zip(names, problem.before, strict=True)
    }
    beside = {call.name: len({mode.cores for mode in call.modes}) > 1 for call in problem.calls}
    cores, keep = problem.devices[0].cores, keeps_cores(problem)
    return _Stages(waits=waits, beside=beside, cores=cores, keep=keep).of(slots)


def with_barriers(problem: SchedulingProblem, stages: Iterable[Stage]) -> SchedulingProblem:
    """The problem of running stages one after the other: what is in one waits for all that is in
    the one before, so that a schedule takes in thought what it takes when it is run."""
    inside = [[n for n in names_in(stage) if n in problem.numbers] for stage in stages]
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


def as_run(problem: SchedulingProblem, schedule: Schedule, stages: Sequence[Stage]) -> Schedule:
    """The schedule that a plan in these stages carries out: each call in the mode of the most cores
    that its lane has, by the kernel that the schedule chose if that is one of them, stage after
    stage. The problem's calls are on one device."""
    slots: list[Slot] = []
    cores = max(device.cores for device in problem.devices)
    for stage in stages:
        first = 0
        for lane in lanes_in(stage, cores):
            for name in filter(problem.numbers.__contains__, lane.calls):
                modes = problem.calls[problem.numbers[name]].modes
                kernel = modes[schedule.slot[name].mode].kernel
                mode = max(
                    (n for n, each in enumerate(modes) if each.cores <= lane.cores),
                    key=lambda n: (modes[n].cores, modes[n].kernel == kernel, -n),
                )
                used = tuple(range(first, first + modes[mode].cores))
                slots.append(Slot(call=name, mode=mode, begin_s=0.0, end_s=0.0, cores=used))
            first += lane.cores
    laid_out = replace(schedule, slots=tuple(slots), transfers=())
    return replace(simulate(with_barriers(problem, stages), laid_out), note=schedule.note)


def in_its_stages(problem: SchedulingProblem, schedule: Schedule) -> Schedule:
    """The same with the stages that are foreseen of a schedule."""
    return as_run(problem, schedule, foreseen_stages(problem, schedule.slots))


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
    """Stages that are made call by call; `beside` says which calls may run beside others, and
    `keep` whether a call that is beside nothing keeps its cores; `open` are the calls of the last
    one with their slots, by rising begin."""

    waits: Mapping[str, set[str]]
    beside: Mapping[str, bool]
    cores: int
    keep: bool = False
    found: list[Stage] = field(default_factory=list[Stage])
    open: dict[str, Slot] = field(default_factory=dict[str, Slot])
    placed: set[str] = field(default_factory=set[str])

    def of(self, slots: Iterable[Slot]) -> list[Stage]:
        """The stages of all calls, those with slots by rising begin."""
        for slot in sorted(slots, key=lambda slot: (slot.begin_s, slot.end_s)):
            self.place(slot.call, slot)
        for name in self.beside:
            self.place(name, None)
        self.close()
        return self.found

    def place(self, name: str, slot: Slot | None) -> None:
        """Put a call behind what it waits for, beside others where its slot leaves cores to them.
        A lane keeps its cores for a stage."""
        if name not in self.beside or name in self.placed:
            return
        for before in sorted(self.waits[name] - self.placed):
            self.place(before, None)
        self.placed.add(name)
        if slot is None or len(slot.cores) >= self.cores or not self.beside[name]:
            self.close()
            self.found.append(name)
            return
        ends = [
            each.end_s
            for other, each in self.open.items()
            if each.cores != slot.cores
            and (other in self.waits[name] or not {*each.cores}.isdisjoint(slot.cores))
        ]
        if ends:
            self.close(max(ends))
        self.open[name] = slot

    def close(self, until_s: float = inf) -> None:
        """End the last stage, with what begins before `until_s`, or takes no time then; what is
        beside nothing runs on all cores, or keeps its own."""
        lanes: dict[tuple[int, ...], list[str]] = {}
        begun = (n for n, s in self.open.items() if s.begin_s < until_s or s.end_s <= until_s)
        for name in list(begun):
            lanes.setdefault(self.open.pop(name).cores, []).append(name)
        if len(lanes) > 1 or (lanes and self.keep):
            self.found.append([LaneCalls(lanes[each], len(each)) for each in sorted(lanes)])
        else:
            self.found.extend(name for names in lanes.values() for name in names)


def _named(
    stage: Sequence[LaneCalls], main: Lane, lanes: dict[str, Lane]
) -> dict[str, Sequence[str]]:
    """The calls of each lane of a stage by its name; lanes that are new are put to the others."""
    found: dict[str, Sequence[str]] = {}
    first = 0
    for each in filter(lambda lane: lane.calls, stage):
        name = lane_name(first, each.cores)
        resources = Resources(cores=each.cores, threads=each.cores)
        lanes.setdefault(name, Lane(device=main.device, resources=resources))
        found[name] = each.calls
        first += each.cores
    return found

"""Networks that run in this process as a plan says: calls in lanes of some cores beside each other.

    network = planned_network(read_plan(folder))
    outputs = network.run({"input": array});  network.mode, network.times_s

A plan is a promise made of predicted times. So both are compiled, the plan and one call after the
other, they are timed in turn, and the faster one stays (`mode` "auto").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Self

from tilewright.core.errors import InternalError, ModelError, TargetError, UsageError
from tilewright.core.records import Placement
from tilewright.core.schedules import PlanCheck, RunMode, ScheduledSlot, ScheduledTransfer
from tilewright.deploy.engines import on_cpu
from tilewright.deploy.network_calls import CallableNetwork, ordered_inputs
from tilewright.deploy.plan_checks import checked, same_bits, same_kernels, told_same
from tilewright.deploy.plan_models import (
    merging,
    opened,
    planned_source,
    require_machine,
    require_planned,
    with_planned_kernels,
)
from tilewright.deploy.ports import input_ports, output_ports
from tilewright.graph.inputs import random_inputs
from tilewright.graph.marks import Marks, Noted
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.hardware.device import local_placement
from tilewright.measure.network_timing import Runner, time_in_turn
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.lanes import cores_in, in_stages, keeps_cores, stages_of
from tilewright.plan.scheduling.answering import answered
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.report import islands, shown
from tilewright.report.traces import Traced, trace
from tilewright.store.base import Store

if TYPE_CHECKING:
    from tilewright.compiler.execute import LoadedNetwork

HERE = "llvm"
"""What plans call this CPU."""
_ROUNDS, _ROUND_S, _MOST_REPEATS = 7, 0.05, 10


class PlannedNetwork(CallableNetwork):
    """A network in this process that runs as a plan says, or one call after the other.

    Called as `CompiledNetwork`. `mode` is what it does, "sequential" or "parallel"; `times_s` are
    the medians of both in turn, where both were timed. `same` says whether both gave the same
    results on drawn inputs, bit for bit; None where there was one way.
    """

    def __init__(self, ways: PlannedWays, planned: Plan) -> None:
        network = ways.network
        self.islands = islands.of_plan(network.plan)
        self.mode, self.times_s = "", dict[str, float]()
        self.same: bool | None = None
        self._keeps_cores, self._prepared = ways.keep_cores, network
        self._made_from, self._planned, self._plans = network.model.name, planned, ways.plans
        self._given: Mapping[str, Array] | None = None
        ports = input_ports(network), output_ports(network)
        super().__init__(ports, on_cpu(ways.placement), partial(self._open, ways))

    def _open(self, ways: PlannedWays) -> LoadedNetwork:
        """Compile all plans, and keep the one that is fastest in turn."""
        from tilewright.compiler.execute import LoadedNetwork
        from tilewright.compiler.stopwatch import has_stopwatch

        network, target = ways.network, ways.placement.target
        self._timed = has_stopwatch(target)
        loaded = {
            name: LoadedNetwork.compiled(plan, target, ways.constants, timed=self._timed)
            for name, plan in ways.plans.items()
        }
        if len(loaded) > 1:
            drawn = random_inputs(network.model.graph, 0)
            inputs = [drawn[name] for name in network.graph.inputs]
            self.same = same_bits([each(inputs) for each in loaded.values()])
            self.times_s = times_in_turn(
                {name: partial(each.time, inputs) for name, each in loaded.items()}
            )
        self.mode = min(loaded, key=lambda name: self.times_s.get(name, 0.0))
        self._marks = loaded[self.mode].marks
        return loaded[self.mode]

    @property
    def choice(self) -> str:
        """What it does, and what both ways took."""
        times = ", ".join(f"{n} {shown.seconds(s)}" for n, s in self.times_s.items())
        told = f"In turn: {times}." if times else ""
        if self._keeps_cores:
            told = "Each call had the cores that it was planned for, since energy or power counts."
        other = not same_kernels(list(self._plans.values()))
        same = told_same(self.same, other_kernels=other)
        return " ".join(filter(None, (f"It ran in the mode {self.mode}.", told, same)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Nothing is to be ended: the network goes with the object."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on inputs by name; returns outputs by name. Raises as a call does."""
        found = super().run(inputs)
        self._given = inputs
        return found

    def checked(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> tuple[PlanCheck, ...]:
        """The error of outputs for these inputs against float32, where it was planned in another
        precision. Raises ModelError where ONNX Runtime does not run the model."""
        (network,) = self._planned.networks
        return checked(self._planned, {network.name: self._prepared}, inputs, outputs)

    def traced(self) -> str:
        """The plan and a run on the inputs of the last one beside each other, as a trace for
        Perfetto: of several runs the shortest, in which the network notes when each call begins and
        ends. Raises UsageError where nothing has run, TargetError where no clock can be read."""
        if not self._timed:
            raise TargetError("the clock of this machine cannot be read within a network")
        if self._given is None:
            raise UsageError("nothing has run that could be traced", hint="Call run first.")
        plan = self._plans[self.mode]
        inputs, marks = ordered_inputs(self._inputs, self._given), Marks(plan)
        runs = self._call(lambda: self._marks(inputs, marks.rows, _ROUNDS))
        found = min(([*marks.read(each)] for each in runs), key=_length_s)
        called = {call.name: call for call in plan.calls}
        (network,) = self._planned.networks
        return beside_its_plan(
            self._planned,
            [
                ScheduledSlot(
                    call=each.call,
                    network=network.name,
                    device=HERE,
                    cores=tuple(each.threads),
                    begin_s=each.begin_s,
                    end_s=each.end_s,
                    kernel=called[each.call].candidate.implementation,
                )
                for each in found
            ],
        )

    def _title(self) -> str:
        return self._made_from

    def _broken(self, reason: str) -> InternalError:
        return InternalError(f"the planned network does not run: {reason}")


def times_in_turn(runners: Mapping[str, Runner]) -> dict[str, float]:
    """Seconds of each way to run a network: medians of seven rounds, A B A B."""
    turns = {
        name: partial(run, min(_MOST_REPEATS, 1 + int(_ROUND_S / max(run(2, 1)))), 1)
        for name, run in runners.items()
    }
    rounds_s = time_in_turn(turns, _ROUNDS)
    return {name: median(map(median, each)) for name, each in rounds_s.items()}


def _length_s(run: Sequence[Noted]) -> float:
    return max(each.end_s for each in run) - min(each.begin_s for each in run)


def beside_its_plan(
    plan: Plan, ran: Sequence[ScheduledSlot], sent: Sequence[ScheduledTransfer] = ()
) -> str:
    """A plan, and what ran of it and was sent at which seconds of a clock, as a trace for
    Perfetto."""
    result = answered(plan.problem, plan.schedule).result
    planned = plan.told(result)
    first_s = min((slot.begin_s for slot in ran), default=0.0)
    slots = (
        replace(slot, begin_s=slot.begin_s - first_s, end_s=slot.end_s - first_s) for slot in ran
    )
    ways = (replace(way, begin_s=way.begin_s - first_s, end_s=way.end_s - first_s) for way in sent)
    traced = Traced(slots=tuple(slots), devices=planned.devices, transfers=tuple(ways))
    return trace({"plan": planned, "run": traced})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWays:
    """A plan's network, prepared, where it runs, and what is compiled of it for each mode that it
    may run in: one where there is nothing to choose, with the kernels that the plan chose unless it
    was asked for without lanes; `constants` are what these plans read. Calls that the plan merges
    are apart where they run one after the other. Where calls `keep_cores`, one that is beside
    nothing has no more of them than the plan gave it."""

    network: PreparedNetwork
    placement: Placement
    plans: Mapping[str, NetworkPlan]
    constants: Mapping[str, Array]
    keep_cores: bool = False


def planned_ways(plan: Plan, store: Store, mode: RunMode) -> PlannedWays:
    """The network of a plan for this CPU, with the settings and the allowed error that it was
    planned with, and the kernels that it chose for calls that have as many cores as it gave them.
    Where energy or power count, each call keeps the cores that it gave them, and no clock chooses
    between two ways: the plan may be slower on purpose.

    Raises TargetError for a plan of other devices, for another kind of machine, or of more cores
    than there are here, ModelError for one that has no network or several, or of a network that has
    changed or is in another precision by now.
    """
    cores = _require_here(plan)
    (named,) = plan.networks
    placement = local_placement(cores)
    require_machine(plan, HERE, placement)
    source = planned_source(plan, named)
    network, whole = opened(named, source, HERE, placement, store)
    require_planned(named, [call for call in plan.problem.calls if call.task], network.fused)
    apart = network, whole
    if named.merges:
        alone = replace(named, merges=(), forms={})
        apart = opened(alone, merging(source, ()), HERE, placement, store)
    slots, keeps = plan.schedule.slots, keeps_cores(plan.problem)
    stages = stages_of(whole, slots, keep=keeps)
    planned = {slot.call: plan.schedule.mode_of(plan.problem, slot.call).cores for slot in slots}
    has = cores_in(stages, cores)
    own = {name: each for name, each in named.kernels.items() if planned.get(name) == has.get(name)}
    chosen, (_, usual) = with_planned_kernels(whole, own, placement), apart
    if all(isinstance(stage, str) for stage in stages) and not named.merges:
        plans = {"sequential": usual if mode == "sequential" else chosen}
    else:
        plans = {"sequential": usual, "parallel": in_stages(chosen, stages)}
        wanted = "parallel" if keeps and mode == "auto" else mode
        plans = plans if wanted == "auto" else {wanted: plans[wanted]}
    keeps = keeps and "parallel" in plans
    constants = {**apart[0].fused.graph.constants, **network.fused.graph.constants}
    return PlannedWays(
        network=network,
        placement=placement,
        plans=plans,
        constants=constants,
        keep_cores=keeps,
    )


def planned_network(plan: Plan, store: Store, *, mode: RunMode = "auto") -> PlannedNetwork:
    """Compile the network of a plan for this CPU. Raises as `planned_ways` does."""
    return PlannedNetwork(planned_ways(plan, store, mode), plan)


def is_for_one_process(plan: Plan) -> bool:
    """Whether a plan is of one network on this CPU, and not on what a table calls like it."""
    imagined = any(each.imagined for each in plan.devices if each.name == HERE)
    used = {plan.schedule.mode_of(plan.problem, slot.call).device for slot in plan.schedule.slots}
    return len(plan.networks) == 1 and used == {HERE} and not imagined


def _require_here(plan: Plan) -> int:
    """The number of cores of the one CPU that a plan's calls run on."""
    if len(plan.networks) != 1:
        many = "several networks" if plan.networks else "a problem written by hand"
        raise ModelError(f"the plan is of {many}, and one network is run", hint="Plan one MODEL.")
    used = {plan.schedule.mode_of(plan.problem, slot.call).device for slot in plan.schedule.slots}
    elsewhere = [name for name in sorted(used) if name != HERE]
    if elsewhere:
        raise TargetError(
            f"calls of the plan run on {elsewhere[0]!r}; plans are run on this CPU alone",
            hint="tilewright plan MODEL --devices llvm --out FOLDER",
        )
    device = plan.problem.device[HERE]
    here = local_placement(None).resources.threads
    if device.cores > here:
        raise TargetError(
            f"the plan is for {device.cores} cores, and there are {here} here",
            hint=f"Plan with --threads {here}.",
        )
    return device.cores

"""`profile`: the time of every task, alone and in its place, the whole network's, its energy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from tilewright.core.errors import NegativeVerdict
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.handoffs import HandoffSamples, nobody_measures
from tilewright.core.neighbours import BesideResult
from tilewright.core.records import (
    EnergyUse,
    Measurement,
    NetworkMeasurement,
    Placement,
)
from tilewright.core.results import MemoryUse, ProfileResult
from tilewright.core.scratch import scratch_folder
from tilewright.core.targets import Binding
from tilewright.deploy import opening, partnering, racing, shipment
from tilewright.deploy.partnering import Partner
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import TaskKey
from tilewright.hardware import environment
from tilewright.hardware.meters import Meter, measure_energy
from tilewright.kernels.planned_memory import CompiledNetwork, planned_memory
from tilewright.kernels.spaces import MAX_ERROR
from tilewright.measure import circumstances, network_timing, targeting
from tilewright.measure.base import Measurer
from tilewright.measure.contention import keep_contention
from tilewright.measure.handoffs import keep_handoffs
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.targeting import measured_peaks
from tilewright.models import ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.store.base import Store
from tilewright.store.known_candidates import (
    SettingsName,
    choose_plan,
    known_outcomes,
    ranked,
)

_WARMUP, _REPEATS = 5, 15
_NAME = "network"


class Measured(TypedDict, total=False):
    """What `profile` measures beside times.

    With a `meter` ("auto", or another name of docs/reference/meters.md) the network's energy in
    joules, with `memory` its peak memory in bytes; with `beside`, another MODEL and a number of
    threads, what both take while they run on cores of their own. None is the default of each.
    """

    meter: str | None
    memory: bool
    beside: tuple[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """One `profile` command; without a `meter` no energy is measured, and memory is only planned
    unless `memory` says otherwise. `verify` has an artifact's files checked by their hashes. With a
    `partner` the network also runs beside that, and what neighbours and hand-offs cost is kept,
    those between processes as `part_handoffs` measures them."""

    placement: Placement
    store: Store
    events: EventSink
    seed: int
    meter: Meter | None = None
    memory: bool = False
    verify: bool = True
    max_error: float = MAX_ERROR
    partner: Partner | None = None
    part_handoffs: HandoffSamples = nobody_measures

    def run(self, model: str, options: ModelOptions, settings: SettingsName) -> ProfileResult:
        """Time each task alone and the compiled network as a whole. Raises UsageError where a
        meter of this machine is to read what runs on another."""
        placement = targeting.allowing(self.placement, options)
        if self.meter is not None:
            targeting.require_here(self.placement)
        self.events(Stage(name="import", detail=model))
        network, artifact = opening.open_model(model, options, placement, verify=self.verify)
        placement = replace(placement, precision=network.precision)
        if network.model.remark:
            self.events(Note(message=network.model.remark))
        if artifact is not None:
            plan = artifact.plan(network, self.placement)
        else:
            plan = choose_plan(network, self.store, placement, settings, self.max_error)
        partner = self.partner and partnering.opened(
            self.partner, options, settings, self.max_error, self.store
        )
        tasks = plan.tasks
        self.store.add_device(self.placement.device)
        self.store.add_workloads([task.workload for task in tasks.values()])
        with targeting.open_measurer(self.placement, seed=self.seed) as measurer:
            measurer.start()
            peaks = measured_peaks(self.store, self.placement, measurer)
            self.events(Stage(name="time", detail=f"{len(tasks)} tasks"))
            known = self._time_tasks(model, plan, measurer, placement)
        result = PlanResult(name=_NAME, plan=plan).with_tasks(known)
        result, energy, memory, beside = self._measure_network(network, result, partner)
        network_s = racing.timing_of(result).latency_s
        kept = NetworkMeasurement(
            network_key=network.key,
            device_class=self.placement.device.class_key,
            resources=self.placement.resources,
            model=model,
            latency_s=network_s,
            planned_bytes=memory.planned_bytes,
            measured_bytes=memory.measured_bytes,
            memory_method=memory.method if memory.measured_bytes is not None else "",
            energy=energy,
            versions=environment.software_versions(),
            created_at=time.time(),
            instance=self.placement.device.instance,
        )
        self.store.add_network(kept)
        if beside is not None:
            there, found = beside
            self.store.add_device(there.device)
            apart = replace(kept, device_class=there.device.class_key, energy=None)
            self.store.add_network(replace(apart, latency_s=found.beside_s))
            self.events(Stage(name="time", detail="how much kernels slow each other down"))
            keep_contention(self.store, self._both())
            self.events(Stage(name="time", detail="what hand-offs between cores take"))
            keep_handoffs(self.store, self._both(), self.part_handoffs, self.events)
        return ProfileResult(
            **shipment.times_of_tasks(network, result, self.placement, peaks),
            network_latency_s=network_s,
            energy=energy,
            memory=memory,
            beside=beside and beside[1],
        )

    def _both(self) -> Placement:
        """The placement on its own CPUs and the partner's."""
        own, partner = self.placement.binding.cpus, self.partner
        theirs = () if partner is None else partner.placement.binding.cpus
        return replace(self.placement, binding=Binding(cpus=(*own, *theirs)))

    def _time_tasks(
        self, model: str, plan: NetworkPlan, measurer: Measurer, placement: Placement
    ) -> dict[TaskKey, CallResult]:
        protocol = replace(
            circumstances.kernel_protocol(self.placement), warmup=_WARMUP, repeats=_REPEATS
        )
        known: dict[TaskKey, CallResult] = {}
        for key, task in plan.tasks.items():
            (outcome,) = measurer.measure(task.workload, [plan.candidates[key]], protocol)
            self.store.add([replace(outcome, model=model)])
            if not isinstance(outcome, Measurement):
                raise NegativeVerdict(
                    f"task {task.name} ({task.workload.key}) could not be timed, {outcome.headline}"
                )
            found = ranked(known_outcomes(task, self.store, placement))
            chosen = outcome.candidate.implementation
            others = (each for each in found if each.candidate.implementation != chosen)
            known[key] = CallResult(alone=outcome, rival=next(others, None))
        return known

    def _measure_network(
        self,
        network: PreparedNetwork,
        result: PlanResult,
        partner: tuple[PreparedNetwork, NetworkPlan] | None,
    ) -> tuple[PlanResult, EnergyUse | None, MemoryUse, tuple[Placement, BesideResult] | None]:
        """The compiled network: its time, that of each call in it, its energy, its memory; and
        what it takes beside its partner."""
        plan = result.plan
        self.events(Stage(name="compile", detail=f"{len(plan.symbols)} kernels"))
        ordered = network.sample_inputs(self.seed)
        with scratch_folder() as folder, targeting.open_networks(self.placement) as w:
            compiled = w.compile(plan, network.graph.constants, folder)
            w.load(_NAME, folder, plan.constant_names)
            timing = network_timing.time_together(
                {_NAME: network_timing.network_runner(w, _NAME, ordered)}
            )[_NAME]
            result = replace(result, timing=timing)
            result = result.with_places(network_timing.time_places(w, _NAME, plan, ordered))
            energy, memory = self._energy(w, ordered), self._memory(plan, compiled, folder, ordered)
            return result, energy, memory, self._beside(w, plan, ordered, partner)

    def _beside(
        self,
        worker: NetworkRunner,
        plan: NetworkPlan,
        inputs: Sequence[Array],
        partner: tuple[PreparedNetwork, NetworkPlan] | None,
    ) -> tuple[Placement, BesideResult] | None:
        """What the network takes beside its partner, and the placement under that circumstance."""
        if self.partner is None or partner is None:
            return None
        self.events(Stage(name="beside", detail=self.partner.model))
        with partnering.company(self.partner, *partner, self.seed) as company:
            there = circumstances.Circumstances(usual=self.placement, partner=company.name)
            return there.placement, company.beside(worker, _NAME, plan, inputs)

    def _memory(
        self,
        plan: NetworkPlan,
        compiled: CompiledNetwork,
        folder: Path,
        inputs: Sequence[Array],
    ) -> MemoryUse:
        """Planned, and measured in a fresh process: one that compiled has freed memory to use."""
        planned = planned_memory(plan, self.placement.target, compiled)
        use = MemoryUse(
            planned_bytes=planned.peak_bytes,
            weight_bytes=planned.weight_bytes,
            arena_bytes=planned.arena_bytes,
            workspace_bytes=planned.workspace_bytes,
            interface_bytes=planned.interface_bytes,
            code_bytes=planned.code_bytes,
            reason="It was not measured; --memory measures it.",
        )
        if not self.memory:
            return use
        self.events(Stage(name="memory", detail="a run in a fresh process"))
        with targeting.open_networks(self.placement) as worker:
            peak = worker.memory_peak(folder, plan.constant_names, inputs)
        return replace(use, measured_bytes=peak.bytes, method=peak.method, reason=peak.reason)

    def _energy(self, worker: NetworkRunner, inputs: Sequence[Array]) -> EnergyUse | None:
        """Of one run: the worker runs in a loop while this process reads the meter."""
        if self.meter is None:
            return None
        self.events(Stage(name="energy", detail=self.meter.method))
        return measure_energy(self.meter, lambda seconds: worker.repeat(_NAME, inputs, seconds))

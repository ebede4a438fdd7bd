"""What a planner needs of a network and several devices: of every call what it takes on each of
them, changes of form, and transfers.

    placements = {"llvm": local_placement(), "cuda -model=H100": …}
    planning_data("zoo:resnet50", placements, request, store, events)

Latencies and energies are those of `predict`, with its sources: a device need not be here, and what
was measured of it is believed before anything else. Transfers go over links that were measured, or
are lower bounds by datasheets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from math import prod

from tilewright.core.element_types import element_type
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import Event, EventSink, Note, Stage
from tilewright.core.forms import PLAIN, Form, form_texts
from tilewright.core.handoffs import ASSUMED, Handoff
from tilewright.core.planning import (
    Conversion,
    PlanningCall,
    PlanningData,
    PlanningDevice,
    PlanningMode,
    PlanningTensor,
)
from tilewright.core.predictions import Mark, mark_of
from tilewright.core.records import Candidate, Placement
from tilewright.core.targets import threads_alone
from tilewright.graph.arrange import copying, same_memory
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import TensorType
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import is_cuda
from tilewright.hardware.remote import read_remote
from tilewright.kernels.base import CPU, SINGLE
from tilewright.kernels.estimates import kernel_stream
from tilewright.kernels.planned_memory import workspaces_of
from tilewright.kernels.plans import with_candidates
from tilewright.kernels.registry import applicable, implementation, packed_type
from tilewright.kernels.spaces import default_candidate
from tilewright.kernels.stored_settings import refusals
from tilewright.measure.targeting import (
    describable_placement,
    foreseen_placements,
    placement_of,
    usual_placement,
)
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan import sources
from tilewright.plan.beside_versions import Quieter, modes_of, tuned_beside
from tilewright.plan.host_links import End, end_of, transfer
from tilewright.plan.kernel_versions import worth_choosing
from tilewright.plan.predicted_versions import predicted_versions, shortlist
from tilewright.plan.sources import ModelSource, NetworkSource
from tilewright.predict.collected import Estimate, family_of
from tilewright.predict.core_counts import forecaster_on_cores
from tilewright.predict.forecasting import Forecaster, energies_j
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.powers import Power, PowerPredictors, why_none
from tilewright.store.base import Store
from tilewright.store.known_candidates import (
    SettingsName,
    best_known,
    defaults,
    fastest_of_each,
)
from tilewright.store.known_handoffs import known_handoff

IN_PLACE = "in place"


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """How a model is read, and which settings its kernels have on every device; with
    `fewer_cores` there are modes on 1, 2, 4 … cores of a CPU, too, in the same forms, and with the
    best settings several versions of a kernel on each number of them. There are several devices of
    those named in `copied`, so that there are ways between them. Calls that are to be `timed` in
    their places have one version, the one that is in the network, on fewer cores as well; with
    `one_version` they have the best one that is known on as many cores."""

    options: ModelOptions
    settings: SettingsName
    max_error: float
    fewer_cores: bool = False
    copied: tuple[str, ...] = ()
    timed: bool = False
    one_version: bool = False

    @property
    def versions(self) -> bool:
        """Whether several kernels may be known of a task; other settings name one."""
        return self.fewer_cores and self.settings == "best" and not (self.timed or self.one_version)


def placements_of(
    names: Sequence[str], tracker: str | None, threads: int | None
) -> dict[str, Placement]:
    """Where targets would run, by their names, CPUs with so many threads, of which this one need
    not have as many. Raises UsageError for none and for one that is named twice, TargetError for
    one that is unknown."""
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if not names or twice:
        what = f"{twice[0]!r} is named twice" if twice else "no device is named"
        raise UsageError(what, hint="--devices llvm --devices 'cuda -model=H100'")
    found: dict[str, Placement] = {}
    remote = [name for name in names if read_remote(name) is not None]
    for name in names:
        count = None if is_cuda(name) else threads
        known = tracker if name in remote or not remote else None
        opened = partial(placement_of, name, known, count)
        _, found[name] = foreseen_placements(name, known, count, opened)
    return {name: describable_placement(placement) for name, placement in found.items()}


def planning_data(
    argument: str,
    placements: Mapping[str, Placement],
    request: PlanningRequest,
    store: Store,
    events: EventSink,
) -> PlanningData:
    """What a planner needs of a model on at least one device, by the names of `placements`.

    Raises as loading a model and `data_of` do.
    """
    events(Stage(name="import", detail=argument))
    source = ModelSource(loading.load(argument, request.options), request.options)
    return data_of(source, placements, request, store, events)


def data_of(
    source: NetworkSource,
    placements: Mapping[str, Placement],
    request: PlanningRequest,
    store: Store,
    events: EventSink,
) -> PlanningData:
    """The same of a network that is there, in its precision.

    A device on which some calls cannot be computed has no mode for these, and plain forms in the
    others. One of a kind that has no kernels in the network's precision computes in float32 beside
    others. Raises ModelError where no device computes the whole network, TargetError for a CPU that
    does not compute in the network's precision, and where no device does.
    """
    there = sources.allowed_on(source, placements)
    wanted = {name: source.settings(request.settings, at) for name, at in there.items()}
    given = next((each for each in wanted.values() if each != request.settings), request.settings)
    # versions of kernels are chosen where all devices have them
    own = {n: replace(request, settings=s, one_version=s != given) for n, s in wanted.items()}
    devices = [
        _Device(name=name, placement=at, request=own[name], source=source, store=store, sink=events)
        for name, at in there.items()
    ]
    whole = [each.prepared for each in devices if isinstance(each.prepared, PreparedNetwork)]
    if not whole:
        raise next(each.prepared for each in devices if isinstance(each.prepared, ModelError))
    fused, precision = sources.with_fewest_calls(whole).fused, source.options.precision
    remarks = dict.fromkeys(each.model.remark for each in whole if precision not in SINGLE)
    for remark in filter(None, remarks):
        events(Note(message=remark))
    kernels = [device.kernels(fused.calls) for device in devices]
    each = list(zip(devices, kernels, strict=True))
    modes = [
        some.modes(fused.calls, some.kernels(fused.calls))
        for device in devices
        for some in device.parts
    ]
    return PlanningData(
        model=whole[0].model.name,
        settings=given,
        precision=precision,
        devices=tuple(device.told(found) for device, found in each),
        inputs=tuple(fused.graph.inputs),
        outputs=tuple(fused.graph.outputs),
        calls=tuple(_call(call, fused, modes) for call in fused.calls),
        tensors=tuple(_tensors(fused)),
        conversions=tuple(c for device, found in each for c in device.conversions(fused, found)),
        transfers=tuple(
            transfer(*pair)
            for pair in (
                *permutations([device.end for device in devices], 2),
                *((each.end, each.end) for each in devices if each.name in request.copied),
            )
        ),
    )


def _call(
    call: TaskCall, fused: FusedNetwork, modes: Sequence[Mapping[str, Sequence[PlanningMode]]]
) -> PlanningCall:
    ports = {tensor: port for port, tensor in reversed(list(enumerate(call.inputs)))}
    inputs = tuple(dict.fromkeys(t for t in call.inputs if t not in fused.graph.constants))
    return PlanningCall(
        name=call.name,
        task=call.workload.key,
        family=family_of(call.workload),
        inputs=inputs,
        ports=tuple(ports[tensor] for tensor in inputs),
        output=call.output,
        modes=tuple(mode for of_device in modes for mode in of_device.get(call.name, ())),
    )


def _tensors(fused: FusedNetwork) -> Iterator[PlanningTensor]:
    graph = fused.graph
    named = dict.fromkeys((*graph.inputs, *graph.outputs))
    named |= dict.fromkeys(tensor for call in fused.calls for tensor in (*call.inputs, call.output))
    for name in named:
        if name not in graph.constants:
            kind = graph.types[name]
            yield PlanningTensor(name=name, dtype=kind.dtype, shape=kind.shape, bytes=kind.bytes)


@dataclass(frozen=True, kw_only=True)
class _Device:
    """A device, and what its predictors say of a model's calls there; where `placement` has a part
    of its cores, `whole` is the device with all of them, which decides about forms."""

    name: str
    placement: Placement
    whole: _Device | None = None
    request: PlanningRequest
    source: NetworkSource
    store: Store
    sink: EventSink

    @cached_property
    def prepared(self) -> PreparedNetwork | ModelError:
        """The network cut into tasks for the device; else why it cannot run there as a whole."""
        if self.whole is not None:
            return self.whole.prepared
        try:
            return self.source.prepared(self.placement)
        except ModelError as error:
            return error

    @cached_property
    def _forecaster(self) -> Forecaster:
        usual, allowed = usual_placement(self.name, self.placement), self.request.max_error
        usual = self.source.allowed(usual)
        return forecaster_on_cores(usual, self.placement, self.store, self._tell, allowed)

    @property
    def _contention_bytes_per_s(self) -> float | None:
        """None of what is no CPU."""
        if self.placement.target.kind not in CPU:
            return None
        return self._forecaster.predictors.contention_bytes_per_s

    @property
    def _handoffs(self) -> tuple[Handoff, ...]:
        """None of what is no CPU."""
        kinds = ASSUMED if self.placement.target.kind in CPU else ()
        return tuple(known_handoff(self.store, self.placement, kind) for kind in kinds)

    @cached_property
    def end(self) -> End:
        """The device as an end of ways."""
        return end_of(self.name, self.placement, self.store)

    @property
    def _cores(self) -> int:
        """Those of a CPU; a GPU computes one thing after the other."""
        there = self.placement
        return there.resources.threads if there.target.kind in CPU else 1

    @cached_property
    def parts(self) -> list[_Device]:
        """The device with 1, 2, 4 … and all of its cores where that is asked for, else itself."""
        counts = [2**n for n in range(self._cores.bit_length()) if 2**n < self._cores]
        fewer = [self._on(count) for count in counts] if self.request.fewer_cores else []
        return [*fewer, self]

    def _on(self, count: int) -> _Device:
        few = replace(self.placement, resources=threads_alone(count))
        return replace(self, placement=describable_placement(few), whole=self)

    def _tell(self, event: Event) -> None:
        """Notes about a device begin with its name."""
        named = isinstance(event, Note)
        self.sink(replace(event, message=f"{self.name}: {event.message}") if named else event)

    def told(self, kernels: Mapping[str, Kernel]) -> PlanningDevice:
        """The device itself, on which these kernels compute calls."""
        prepared, settings, whole = self.prepared, self.request.settings, None
        if isinstance(prepared, PreparedNetwork):
            whole = self._forecaster.network(prepared, settings, plan=self._plan).network
        used = list(dict.fromkeys(kernels.values()))
        link = self.end.link
        return PlanningDevice(
            name=self.name,
            kind=self.placement.target.kind,
            device_class=str(self.placement.key),
            threads=self.placement.resources.threads,
            precision=sources.precision_on(self.source, self.placement),
            network=whole,
            refused=prepared.message if isinstance(prepared, ModelError) else "",
            energy_reason=why_none(used, self._powers(used)),
            contention_bytes_per_s=self._contention_bytes_per_s,
            host_latency_s=link and link.there.latency_s,
            host_bytes_per_s=link and link.there.bytes_per_s,
            link=link,
            handoffs=self._handoffs,
        )

    def kernels(self, calls: Sequence[TaskCall]) -> dict[str, Kernel]:
        """What computes calls, by their names: as the whole network would have it there, else each
        by itself in default settings and plain forms."""
        placement, allowed = self.placement, self.request.max_error
        if isinstance(self.prepared, PreparedNetwork):
            settings, store, plan = self.request.settings, self.store, self._plan
            own = self.whole is not None and not self.request.timed
            if own and settings == "default":
                plan = with_candidates(plan, defaults(plan.tasks, placement, allowed))
            elif own and settings == "best":
                plan = with_candidates(plan, best_known(plan.tasks, store, placement, allowed))
            return {call.name: (call.workload, call.candidate) for call in plan.calls}
        return {
            call.name: (call.workload, default_candidate(call.workload, ports, placement)[0])
            for call in calls
            if applicable(call.workload, placement.target, placement.resources)
            for ports in [(PLAIN,) * (len(call.inputs) + 1)]
        }

    @cached_property
    def _plan(self) -> NetworkPlan:
        """The kernels of the whole network on all cores, one after the other."""
        if self.whole is not None:
            return self.whole._plan
        assert isinstance(self.prepared, PreparedNetwork)
        asked = self.placement, self.request.settings, self.request.max_error
        return self.source.plan(self.prepared, self.store, *asked)

    def modes(
        self, calls: Sequence[TaskCall], kernels: Mapping[str, Kernel]
    ) -> dict[str, list[PlanningMode]]:
        """How each call is computed there, by its name: in one way, or in several versions, the
        fastest first; none of those that cannot be."""
        versions = {kernel: self._versions(kernel) for kernel in dict.fromkeys(kernels.values())}
        quieter = self._tuned_beside(versions)
        for kernel, other in quieter.items():
            versions[kernel] = list(dict.fromkeys((*versions[kernel], other.kernel)))
        known = list(dict.fromkeys(one for several in versions.values() for one in several))
        taken = dict(zip(known, self._forecaster.kernels(known), strict=True))
        for kernel, others in self._predicted(versions, taken).items():
            versions[kernel] += [one for one in others if one not in versions[kernel]]
            taken = {**others, **taken}
        used, estimates = list(taken), list(taken.values())
        powers = self._powers(used)
        joules = energies_j(estimates, powers)
        each = {
            kernel: replace(
                self._mode(kernel, estimate, energy_j), energy_is=_mark(estimate, power)
            )
            for kernel, estimate, power, energy_j in zip(
                used, estimates, powers, joules, strict=True
            )
        }
        chosen = {
            kernel: worth_choosing(modes_of(several, each, quieter.get(kernel)))
            for kernel, several in versions.items()
        }
        found = {name: chosen[kernel] for name, kernel in kernels.items()}
        if isinstance(self.prepared, PreparedNetwork):
            free = PlanningMode(
                device=self.name, cores=self._cores, implementation=IN_PLACE, energy_j=0.0
            )
            own = {call.name for call in self.prepared.fused.calls}
            found |= {c.name: [free] for c in calls if c.name in own and c.name not in found}
        return found

    def _versions(self, kernel: Kernel) -> list[Kernel]:
        """A kernel, and others of its task in the same forms that may be worth choosing from: of
        each implementation the fastest that was measured, be it on another number of cores."""
        (workload, candidate), allowed = kernel, self.request.max_error
        if not self._chooses:
            return [kernel]
        there, whole = self.placement, self.whole or self
        places = [there, *(part.placement for part in whole.parts)]
        known = [
            one
            for place in dict.fromkeys(places)
            for one in fastest_of_each(workload, candidate.forms, self.store, place, allowed)
        ]
        why = refusals(workload, known, there.target, there.resources)
        found = [one for one, refused in zip(known, why, strict=True) if not refused]
        return list(dict.fromkeys((workload, one) for one in (candidate, *found)))

    def _tuned_beside(self, kernels: Iterable[Kernel]) -> dict[Kernel, Quieter]:
        """For kernels others that were tuned while something ran beside, where these take less."""
        if not self._chooses:
            return {}
        return tuned_beside(kernels, self.store, self.placement, self.request.max_error)

    def _predicted(
        self, kernels: Iterable[Kernel], taken: Mapping[Kernel, Estimate]
    ) -> dict[Kernel, dict[Kernel, Estimate]]:
        """For each kernel others from all settings of its task, with what is predicted of them."""
        if not self._chooses:
            return {}
        each, there, allowed = list(kernels), self.placement, self.request.max_error
        asked = [shortlist(task, one.forms, there, allowed) for task, one in each]
        usual = [(kernel, taken[kernel]) for kernel in each]
        told = self._forecaster.modelled
        found = predicted_versions(usual, asked, told, lambda one: self._moved_bytes(*one))
        return {kernel: dict(others) for kernel, others in zip(each, found, strict=True)}

    @property
    def _chooses(self) -> bool:
        """Whether there are several versions of a kernel to choose from."""
        whole = self.whole or self
        return self.request.versions and isinstance(whole.prepared, PreparedNetwork)

    def _moved_bytes(self, workload: Workload, candidate: Candidate) -> int:
        return round(kernel_stream(workload, candidate, self.placement.target, self._cores))

    def _mode(self, kernel: Kernel, estimate: Estimate, energy_j: float | None) -> PlanningMode:
        """A kernel's numbers; constants that it does not repack are counted as they are."""
        (workload, candidate), target = kernel, self.placement.target
        packed = implementation(candidate.implementation).packed_shapes(workload, candidate)
        weights = [
            element_type(packed_type(workload, candidate, n)).bytes
            * prod(packed.get(n, argument.type.shape))
            for n, argument in enumerate(workload.arguments)
            if argument.role == "constant"
        ]
        beside = workspaces_of(workload, candidate, target, self.placement.resources)
        return PlanningMode(
            device=self.name,
            cores=self._cores,
            implementation=candidate.implementation,
            settings=dict(candidate.settings),
            forms=form_texts(candidate.forms),
            latency_s=estimate.latency_s,
            low_s=estimate.low_s,
            high_s=estimate.high_s,
            source=estimate.source,
            energy_j=energy_j,
            weight_bytes=sum(weights),
            moved_bytes=self._moved_bytes(workload, candidate),
            memory_is="predicted",
            moved_is="predicted",
            workspace_bytes=sum(beside.shared) + self.placement.resources.threads * sum(beside.own),
        )

    def _powers(self, kernels: Sequence[Kernel]) -> list[Power | None]:
        return PowerPredictors(predictors=self._forecaster.predictors).powers(kernels)

    def conversions(
        self, fused: FusedNetwork, kernels: Mapping[str, Kernel]
    ) -> Iterator[Conversion]:
        """Copies of the tensors that kernels read or write in other than plain forms, both ways."""
        wanted = dict.fromkeys(
            (tensor, form)
            for call in fused.calls
            if call.name in kernels
            for tensor, form in zip(
                (*call.inputs, call.output), kernels[call.name][1].forms, strict=True
            )
            if tensor not in fused.graph.constants
        )
        copies = [
            (tensor, *ends)
            for tensor, form in wanted
            if not same_memory(fused.graph.types[tensor], form, PLAIN)
            for ends in ((form, PLAIN), (PLAIN, form))
        ]
        kernels_of = [self._copy(fused.graph.types[tensor], *ends) for tensor, *ends in copies]
        for (tensor, before, after), estimate in zip(
            copies, self._forecaster.kernels(kernels_of), strict=True
        ):
            yield Conversion(
                device=self.name,
                tensor=tensor,
                before=before.text,
                after=after.text,
                latency_s=estimate.latency_s,
                source=estimate.source,
            )

    def _copy(self, kind: TensorType, before: Form, after: Form) -> Kernel:
        workload = copying(kind)
        return workload, default_candidate(workload, (before, after), self.placement)[0]


def _mark(estimate: Estimate, power: Power | None) -> Mark | None:
    """What a power times a time is."""
    time = mark_of(estimate.source)
    if power is None:
        return None
    return time if power.metered or time == "bound" else "predicted"

"""Planning what runs where: networks on devices, or a problem from a file; and its files.

plan zoo:googlenet --devices llvm --devices 'cuda -model=H100' --out FOLDER
  → schedule.json, trace.json, plan.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tilewright.core.arguments import (
    Error,
    count_of,
    path_of,
    path_or_none,
    text_or_none,
    truth_of,
)
from tilewright.core.codec import to_builtins
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, Stage
from tilewright.core.handoffs import Handoff
from tilewright.core.links import DeviceLink
from tilewright.core.planning import PlanningData
from tilewright.core.records import Placement
from tilewright.core.schedules import MEASURE, PLAN_FILE, ScheduleResult, Second
from tilewright.deploy.merging import Foreseen, better, with_merges
from tilewright.deploy.plan_answers import run_as, runs_in_parts, write_pictures
from tilewright.deploy.plan_models import is_file, source_of
from tilewright.deploy.planned_network import HERE
from tilewright.deploy.timed_calls import timed_calls
from tilewright.hardware.device import local_placement
from tilewright.hardware.remote import is_behind_tracker, remote_place
from tilewright.kernels.base import SINGLE
from tilewright.measure.links import keep_links
from tilewright.measure.targeting import require_one_name
from tilewright.models import ModelOptions
from tilewright.plan.call_times import as_timed
from tilewright.plan.imagined_devices import (
    DeviceTable,
    copies_of,
    multiplied,
    names_of,
    read_table,
    with_tables,
)
from tilewright.plan.kernel_versions import chosen_kernels
from tilewright.plan.network_scheduling import (
    Wanted,
    handoff_of,
    links_of,
    precisions_beside,
    scheduling_problem,
    titles,
)
from tilewright.plan.planning_data import PlanningRequest, data_of, placements_of
from tilewright.plan.scheduling import problem_file
from tilewright.plan.scheduling.alternatives import AsRun
from tilewright.plan.scheduling.answering import Answer, answer, answer_in_parts
from tilewright.plan.scheduling.plan_file import (
    Plan,
    PlannedDevice,
    PlannedNetwork,
    forms_hash,
    write_plan,
)
from tilewright.plan.scheduling.planning import DEFAULT, SCHEDULERS
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.scheduler import NothingFound
from tilewright.plan.sources import NetworkSource
from tilewright.store.base import Store
from tilewright.store.known_candidates import allowed_error, checked_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """By which planner, for at most how long, for the worst case or the expected one, whether
    sibling calls may `merge`, what is weighed against latency beside it, and where the plan's files
    go, if anywhere."""

    planner: str | None = None
    limit_s: float = 10.0
    robust: bool = False
    merge: bool = False
    front: Second | None = None
    out: Path | None = None


def request_of(said: Mapping[str, Any]) -> PlanRequest:
    """How to plan by the arguments that somebody gave, `planner`, `seconds`, `robust`, `merge`,
    `front` and `out`. Raises UsageError for what none of these can be."""
    return PlanRequest(
        planner=text_or_none(said.get("planner"), "planner"),
        limit_s=count_of(said.get("seconds", 10), "seconds", 1),
        robust=truth_of(said.get("robust", False), "robust"),
        merge=truth_of(said.get("merge", False), "merge"),
        front=known_front(said.get("front")),
        out=path_or_none(said.get("out"), "out"),
    )


def known_front(given: object) -> Second | None:
    """What is weighed against latency, if anything. Raises UsageError for what is not known."""
    found: tuple[Second, ...] = tuple(each for each in MEASURE if each == given)
    if given is not None and not found:
        raise UsageError(f"no front of {given!r} is known.", hint=f"Known: {', '.join(MEASURE)}.")
    return found[0] if found else None


def plan_problem(
    path: Path, request: PlanRequest, wanted: Wanted | None = None, *, timed: bool = False
) -> ScheduleResult:
    """Plan the scheduling problem in a file, which says itself what is wanted and what can be
    merged. Raises as `schedule_with`, UsageError where more than that is asked for, or calls are to
    be `timed`, ModelError for a file that is missing, broken, or holds what cannot be planned,
    OutputError where files of the plan cannot be written."""
    if timed or request.merge:
        what = "timed" if timed else "merged unless its file says so"
        raise UsageError(f"calls of a problem cannot be {what}", hint="Plan a MODEL.")
    if wanted not in (None, Wanted()):
        raise UsageError(
            "objective, limits and terms of a problem are in its file",
            hint="Change the file, or leave the flags out.",
        )
    problem = problem_file.read_problem(path)
    named = replace(problem, name=problem.name or path.stem)
    return _kept(_answered(named, (), request), (), request)


def refuse_precision(options: ModelOptions) -> None:
    """Raise UsageError where a problem is to be planned in a precision: it has times, no types."""
    if options.precision not in SINGLE:
        raise UsageError(
            f"a problem from a file is of times alone, which --precision {options.precision} "
            "cannot change",
            hint="Plan a MODEL.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Devices by name, how many there are of each (one, where it is not said), and those that
    tables alone tell of."""

    placements: Mapping[str, Placement]
    copies: Mapping[str, int] = field(default_factory=dict[str, int])
    tables: Mapping[str, DeviceTable] = field(default_factory=dict[str, DeviceTable])


def devices_of(
    names: Sequence[str], tables: Mapping[str, Any], tracker: str | None, threads: int | None
) -> Devices:
    """Targets, "8*cuda -model=H100" being eight, and the files of `tables` by their devices' names.
    Raises as `copies_of`, `placements_of`, `require_one_name` and `read_table`."""
    copies = copies_of(names)
    placements = placements_of(tuple(copies), tracker, threads)
    require_one_name(placements)
    return Devices(
        placements=placements,
        copies=copies,
        tables={name: read_table(path_of(file, name)) for name, file in tables.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """Models that run at a time, each once, on what devices, how times are predicted, and what is
    wanted."""

    models: Sequence[str]
    devices: Devices
    predicted: PlanningRequest
    wanted: Wanted

    @property
    def unsaid_links(self) -> dict[str, Placement]:
        """The devices behind a tracker whose links are to be measured, by name: nobody said how
        fast they are, and there are other devices, or measuring is asked for. Raises UsageError
        where it is, and no device is left."""
        there, wanted = self.devices, self.wanted
        found = {
            name: placement
            for name, placement in there.placements.items()
            if is_behind_tracker(name)
            and (name not in wanted.terms or wanted.terms[name].link is None)
        }
        if wanted.measured_links:
            if not found:
                raise UsageError(
                    "--link measured is for devices behind a tracker, and the link of each that is "
                    "planned with is said",
                    hint="--devices rpc:KEY --tracker HOST:PORT",
                )
            return found
        several = sum(there.copies.get(name, 1) for name in there.placements) + len(there.tables)
        return found if several > 1 else {}

    def require_one_here(self) -> None:
        """Raise UsageError unless it is one network on this CPU alone, whose calls can be timed in
        their places."""
        there = self.devices
        (name, placement), *others = there.placements.items()
        alone = len(self.models) == 1 and not (others or there.tables)
        if not (alone and name == HERE and there.copies.get(name, 1) == 1):
            raise UsageError(
                "calls are timed in their places for one network on this CPU alone",
                hint=f"One MODEL, and no device but {HERE}; or leave --time-calls out.",
            )
        local_placement(placement.resources.threads)


@dataclass(frozen=True)
class _WithUsualError(PlanningRequest):
    """With the error that is usual in the options' precision; nobody asked for one."""


def predicted_with(
    options: ModelOptions, settings: str | None, max_error: Error | None, *, timed: bool
) -> PlanningRequest:
    """Times on as many cores as there are and on fewer, of settings and errors that are known, in
    the options' precision; `timed` says whether those of this CPU are taken in their places. Raises
    UsageError for others."""
    kind = _WithUsualError if max_error is None else PlanningRequest
    return kind(
        options=options,
        settings=checked_settings(settings or "default"),
        max_error=allowed_error(max_error, options.precision),
        fewer_cores=True,
        timed=timed,
    )


def plan_networks(
    networks: Networks, request: PlanRequest, store: Store, events: EventSink
) -> ScheduleResult:
    """Plan networks on devices from what is predicted of them there, or from calls that are timed
    in their places. Links of devices behind a tracker that nobody said are measured, and kept in
    the store. Where siblings may be merged, the time is divided among the choice of merges, the
    plan without them, and the one with them, of which the `better` one is kept. Raises as
    `planning_data`, `keep_links`, `scheduling_problem` and `schedule_with`; for a planner that
    nobody knows at once, and so for calls that cannot be timed or merged."""
    SCHEDULERS.named(request.planner or DEFAULT)
    models, there = networks.models, networks.devices
    if networks.predicted.timed:
        networks.require_one_here()
    if request.merge and there.tables:
        raise UsageError(
            "no table knows what merged calls take", hint="Leave --merge or --table out."
        )
    keep_links(store, networks.unsaid_links, events, needed=networks.wanted.measured_links)
    several = tuple(name for name, n in there.copies.items() if n > 1)
    asked = replace(networks.predicted, copied=several)
    sources = list[NetworkSource]()
    for model in models:
        events(Stage(name="import", detail=model))
        sources.append(source_of(model, asked.options))
    made = _Planning(networks=networks, asked=asked, store=store, events=events)
    usual = made.foreseen(sources)
    if not request.merge:
        return made.written(usual, made.planned(usual, request), request)
    third = replace(request, limit_s=request.limit_s / 3)
    limit_s, robust = third.limit_s, third.robust
    merged = with_merges(usual, there.placements, made.foreseen, limit_s, robust=robust)
    if merged is usual:
        rest = replace(request, limit_s=2 * limit_s)
        return made.written(usual, made.planned(usual, rest), request)
    found = [made.planned_or_not(each, third) for each in (usual, merged)]
    best, kept = better((usual, merged), found, robust=robust, as_run=made.as_run(usual))
    return made.written(best, kept, request)


@dataclass(frozen=True, kw_only=True)
class _Planning:
    """What planning needs of some networks on devices."""

    networks: Networks
    asked: PlanningRequest
    store: Store
    events: EventSink

    def foreseen(self, sources: Sequence[NetworkSource]) -> Foreseen:
        """What is known of the networks as these sources have them, and the problem."""
        there, wanted = self.networks.devices, self._wanted
        known = [
            data_of(each, there.placements, self._within(each), self.store, self.events)
            for each in sources
        ]
        several = [multiplied(each, there.copies) for each in known]
        data = with_tables(several, there.tables, self.events)
        problem = scheduling_problem(data, wanted)
        if self.asked.timed:
            asked = self._within(sources[0])
            problem = _timed(problem, sources[0], asked, self.store, self.events)
        return Foreseen(sources=sources, known=known, data=data, problem=problem)

    @property
    def _wanted(self) -> Wanted:
        return _of_all_copies(self.networks.wanted, self.networks.devices.copies)

    def _within(self, source: NetworkSource) -> PlanningRequest:
        """The request with the error that a network may have."""
        return replace(self.asked, max_error=_allowed(self.asked, source))

    def planned(self, foreseen: Foreseen, request: PlanRequest) -> Answer:
        """The answer to the problem."""
        self.events(Stage(name="plan", detail=" and ".join(self.networks.models)))
        named = tuple(self._named(foreseen))
        links = links_of(foreseen.data, self._wanted)
        between = _Between(handoff=handoff_of(foreseen.data), links=links)
        return _answered(foreseen.problem, named, request, between)

    def as_run(self, foreseen: Foreseen) -> AsRun | None:
        """How schedules of the networks are run, where that is in stages."""
        return run_as(tuple(self._named(foreseen)), foreseen.problem)

    def planned_or_not(self, foreseen: Foreseen, request: PlanRequest) -> Answer | NothingFound:
        """The answer to the problem, or why there is none."""
        try:
            return self.planned(foreseen, request)
        except NothingFound as error:
            return error

    def written(self, foreseen: Foreseen, found: Answer, request: PlanRequest) -> ScheduleResult:
        """The answer's result, whose plan is written where it is to be kept."""
        chosen_from = foreseen.data if self.asked.versions else ()
        devices = tuple(_devices(self.networks.devices))
        return _kept(found, tuple(self._named(foreseen)), request, devices, chosen_from)

    def _named(self, foreseen: Foreseen) -> Iterator[PlannedNetwork]:
        """The networks as a plan names them."""
        for title, model, told, data, source, merges in zip(
            titles(foreseen.data),
            self.networks.models,
            foreseen.data,
            foreseen.known,
            foreseen.sources,
            foreseen.merges,
            strict=True,
        ):
            yield PlannedNetwork(
                name=title,
                model=str(Path(model).resolve()) if is_file(model) else model,
                options=_said(self.asked.options),
                settings=self.asked.settings,
                max_error=_allowed(self.asked, source),
                precision=data.precision,
                forms=dict(_forms(data)),
                merges=merges,
                device_precisions=precisions_beside(told),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Between:
    """What a plan of networks counts with between calls; nothing of a problem from a file."""

    handoff: Handoff | None = None
    links: tuple[DeviceLink, ...] = ()


def _allowed(asked: PlanningRequest, source: NetworkSource) -> float:
    """The error that a network may have: what is asked for, or where nothing is, the usual one of
    the precision in which an artifact was compiled."""
    if isinstance(asked, _WithUsualError):
        return allowed_error(None, source.options.precision)
    return asked.max_error


def _forms(data: PlanningData) -> Iterator[tuple[str, str]]:
    """A hash of the forms in which all calls are computed, by the names of devices that compute
    all; none in single precision, where they follow from the network."""
    for device in data.devices if data.precision not in SINGLE else ():
        usual = {
            call.name: mode.forms
            for call in data.calls
            for mode in sorted(call.modes, key=lambda mode: mode.cores)
            if mode.device == device.name and mode.forms
        }
        all_there = all(any(m.device == device.name for m in call.modes) for call in data.calls)
        if all_there and not device.refused:
            yield device.name, forms_hash(usual)


def _timed(
    problem: SchedulingProblem,
    source: NetworkSource,
    asked: PlanningRequest,
    store: Store,
    events: EventSink,
) -> SchedulingProblem:
    """The problem of a network on this CPU with times of its calls in their places."""
    (device,) = problem.devices
    placement = source.allowed(local_placement(device.cores))
    network, settings = source.prepared(placement), source.settings(asked.settings, placement)
    plan = source.plan(network, store, placement, settings, asked.max_error)
    counts = {mode.cores for call in problem.calls for mode in call.modes}
    return as_timed(problem, timed_calls(network, plan, placement, counts, events))


def _of_all_copies(wanted: Wanted, copies: Mapping[str, int]) -> Wanted:
    """What is said of a device is said of each of them, if there are several."""
    terms = {
        own: given
        for name, given in wanted.terms.items()
        for own in names_of(name, copies.get(name, 1))
    }
    return replace(wanted, terms=terms)


def _devices(there: Devices) -> Iterator[PlannedDevice]:
    for name, placement in there.placements.items():
        count = there.copies.get(name, 1)
        device = _device(name, placement)
        for own in names_of(name, count):
            why = f"one of {count} that were planned with as {name!r}" if count > 1 else ""
            yield replace(device, name=own, imagined=why)
    for name in there.tables:
        yield PlannedDevice(name=name, machine="", imagined="known by a table of times alone")


def _device(name: str, placement: Placement) -> PlannedDevice:
    tracker = ""
    if is_behind_tracker(name):
        _, host, port = remote_place(placement.device)
        tracker = f"{host}:{port}"
    return PlannedDevice(name=name, machine=placement.device.class_key, tracker=tracker)


def _said(options: ModelOptions) -> dict[str, Any]:
    """The options that are not the usual ones, files among them wherever one is."""
    usual = ModelOptions()
    if options.calibration is not None:
        options = replace(options, calibration=Path(options.calibration).resolve())
    given = {each.name: getattr(options, each.name) for each in fields(options)}
    return to_builtins(
        {name: value for name, value in given.items() if value != getattr(usual, name)}
    )


def _answered(
    problem: SchedulingProblem,
    networks: tuple[PlannedNetwork, ...],
    request: PlanRequest,
    between: _Between | None = None,
) -> Answer:
    """The answer to a problem of some networks, if it is of any."""
    asked = (problem, request.planner, request.limit_s)
    robust, second = request.robust, request.front
    if runs_in_parts(networks, problem):
        found = answer_in_parts(*asked, robust=robust, second=second)
    else:
        found = answer(*asked, robust=robust, second=second, as_run=run_as(networks, problem))
    known = between or _Between()
    told = replace(found.result, handoff=known.handoff, links=known.links)
    return replace(found, result=told)


def _kept(
    found: Answer,
    networks: tuple[PlannedNetwork, ...],
    request: PlanRequest,
    devices: tuple[PlannedDevice, ...] = (),
    chosen_from: Sequence[PlanningData] = (),
) -> ScheduleResult:
    """Write a plan where it is to be kept, with the kernels that it chose from what is known of its
    networks."""
    plan = Plan(problem=found.problem, schedule=found.schedule, networks=networks, devices=devices)
    found = replace(found, result=plan.told(found.result))
    if request.out is not None:
        if chosen_from:
            plan = replace(plan, networks=tuple(_with_kernels(networks, chosen_from, found)))
        write_plan(plan, request.out / PLAN_FILE)
        write_pictures(request.out, found, {"plan": found.result})
    return found.result


def _with_kernels(
    networks: Sequence[PlannedNetwork], chosen_from: Sequence[PlanningData], found: Answer
) -> Iterator[PlannedNetwork]:
    for named, data in zip(networks, chosen_from, strict=True):
        prefix = f"{named.name}/" if len(networks) > 1 else ""
        several = data.settings == named.settings
        kernels = several and chosen_kernels(data, prefix, found.problem, found.schedule)
        yield replace(named, kernels=kernels or {})

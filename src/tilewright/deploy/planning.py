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
    Text,
    count_of,
    named_of,
    path_of,
    path_or_none,
    text_or_none,
    truth_of,
)
from tilewright.core.codec import to_builtins
from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.core.handoffs import Handoff
from tilewright.core.links import DeviceLink
from tilewright.core.output_files import write_text
from tilewright.core.planning import PlanningData
from tilewright.core.records import Placement, Precision
from tilewright.core.schedules import MEASURE, PLAN_FILE, ScheduleResult, Second
from tilewright.deploy.plan_models import is_file, source_of
from tilewright.deploy.planned_network import HERE
from tilewright.deploy.timed_calls import timed_calls
from tilewright.hardware.device import local_placement
from tilewright.hardware.remote import read_remote, remote_place
from tilewright.kernels.base import SINGLE
from tilewright.measure.links import keep_links
from tilewright.measure.targeting import require_one_name
from tilewright.models import ModelOptions
from tilewright.plan.call_times import as_timed
from tilewright.plan.host_links import is_behind_tracker
from tilewright.plan.imagined_devices import (
    DeviceTable,
    copies_of,
    multiplied,
    names_of,
    read_table,
    with_tables,
)
from tilewright.plan.kernel_versions import chosen_kernels
from tilewright.plan.lanes import in_its_stages
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
from tilewright.plan.scheduling.answering import Answer, answer, answer_in_parts, answered
from tilewright.plan.scheduling.beside import slowdown_of
from tilewright.plan.scheduling.bounds import bound
from tilewright.plan.scheduling.parts import Mode, ScheduledCall
from tilewright.plan.scheduling.plan_file import (
    Plan,
    PlannedDevice,
    PlannedNetwork,
    forms_hash,
    read_plan,
    read_times,
    write_plan,
)
from tilewright.plan.scheduling.planning import DEFAULT, SCHEDULERS
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.simulator import simulate
from tilewright.plan.sources import NetworkSource
from tilewright.report.plan_page import render_plan
from tilewright.report.traces import trace
from tilewright.store.base import Store
from tilewright.store.known_candidates import allowed_error, checked_settings

TRACE, PAGE = "trace.json", "plan.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """By which planner, for at most how long, for the worst case or the expected one, what is
    weighed against latency beside it, and where the plan's files go, if anywhere."""

    planner: str | None = None
    limit_s: float = 10.0
    robust: bool = False
    front: Second | None = None
    out: Path | None = None


def request_of(said: Mapping[str, Any]) -> PlanRequest:
    """How to plan by the arguments that somebody gave, `planner`, `seconds`, `robust`, `front` and
    `out`. Raises UsageError for what none of these can be."""
    return PlanRequest(
        planner=text_or_none(said.get("planner"), "planner"),
        limit_s=count_of(said.get("seconds", 10), "seconds", 1),
        robust=truth_of(said.get("robust", False), "robust"),
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
    """Plan the scheduling problem in a file, which says itself what is wanted. Raises as
    `schedule_with`, UsageError where more than that is wanted or calls are to be `timed`,
    ModelError for a file that is missing, broken, or holds what cannot be planned, OutputError
    where files of the plan cannot be written."""
    if timed:
        raise UsageError("calls of a problem cannot be timed", hint="Plan a MODEL.")
    if wanted not in (None, Wanted()):
        raise UsageError(
            "objective, limits and terms of a problem are in its file",
            hint="Change the file, or leave the flags out.",
        )
    problem = problem_file.read_problem(path)
    named = replace(problem, name=problem.name or path.stem)
    return _planned(named, (), request)


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
    the store. Raises as `planning_data`, `keep_links`, `scheduling_problem` and `schedule_with`;
    for a planner that nobody knows at once, and so for calls that cannot be timed."""
    SCHEDULERS.named(request.planner or DEFAULT)
    models, there = networks.models, networks.devices
    if networks.predicted.timed:
        networks.require_one_here()
    keep_links(store, networks.unsaid_links, events, needed=networks.wanted.measured_links)
    several = tuple(name for name, n in there.copies.items() if n > 1)
    asked = replace(networks.predicted, copied=several)
    sources = list[NetworkSource]()
    for model in models:
        events(Stage(name="import", detail=model))
        sources.append(source_of(model, asked.options))
    errors = [_allowed(asked, source) for source in sources]
    known = [
        data_of(source, there.placements, replace(asked, max_error=error), store, events)
        for source, error in zip(sources, errors, strict=True)
    ]
    data = with_tables([multiplied(each, there.copies) for each in known], there.tables, events)
    named = tuple(
        PlannedNetwork(
            name=title,
            model=str(Path(model).resolve()) if is_file(model) else model,
            options=_said(asked.options),
            settings=asked.settings,
            max_error=error,
            precision=each.precision,
            forms=dict(_forms(each)),
        )
        for title, model, each, error in zip(titles(data), models, known, errors, strict=True)
    )
    events(Stage(name="plan", detail=" and ".join(models)))
    devices = tuple(_devices(there, precisions_beside(data)))
    chosen_from = data if asked.versions else ()
    wanted = _of_all_copies(networks.wanted, there.copies)
    problem = scheduling_problem(data, wanted)
    if asked.timed:
        problem = _timed(problem, sources[0], replace(asked, max_error=errors[0]), store, events)
    between = _Between(handoff=handoff_of(data), links=links_of(data, wanted))
    return _planned(problem, named, request, devices, chosen_from, between)


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


def _devices(there: Devices, beside: Mapping[str, Precision]) -> Iterator[PlannedDevice]:
    for name, placement in there.placements.items():
        count = there.copies.get(name, 1)
        device = _device(name, placement)
        for own in names_of(name, count):
            why = f"one of {count} that were planned with as {name!r}" if count > 1 else ""
            yield replace(device, name=own, imagined=why, precision=beside.get(own))
    for name in there.tables:
        yield PlannedDevice(name=name, machine="", imagined="known by a table of times alone")


def _device(name: str, placement: Placement) -> PlannedDevice:
    tracker = ""
    if read_remote(name) is not None:
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


def _planned(
    problem: SchedulingProblem,
    networks: tuple[PlannedNetwork, ...],
    request: PlanRequest,
    devices: tuple[PlannedDevice, ...] = (),
    chosen_from: Sequence[PlanningData] = (),
    between: _Between | None = None,
) -> ScheduleResult:
    """Plan, and write the plan where it is to be kept, with the kernels that it chose from what is
    known of its networks."""
    asked = (problem, request.planner, request.limit_s)
    robust, second = request.robust, request.front
    if _runs_in_parts(networks, problem):
        found = answer_in_parts(*asked, robust=robust, second=second)
    else:
        as_run = _as_run(networks, problem)
        found = answer(*asked, robust=robust, second=second, as_run=as_run)
    plan = Plan(problem=found.problem, schedule=found.schedule, networks=networks, devices=devices)
    known = between or _Between()
    told = replace(plan.told(found.result), handoff=known.handoff, links=known.links)
    found = replace(found, result=told)
    if request.out is not None:
        if chosen_from:
            plan = replace(plan, networks=tuple(_with_kernels(networks, chosen_from, found)))
        write_plan(plan, request.out / PLAN_FILE)
        _write_pictures(request.out, found, {"plan": found.result})
    return found.result


def _with_kernels(
    networks: Sequence[PlannedNetwork], chosen_from: Sequence[PlanningData], found: Answer
) -> Iterator[PlannedNetwork]:
    for named, data in zip(networks, chosen_from, strict=True):
        prefix = f"{named.name}/" if len(networks) > 1 else ""
        several = data.settings == named.settings
        kernels = several and chosen_kernels(data, prefix, found.problem, found.schedule)
        yield replace(named, kernels=kernels or {})


def _as_run(networks: Sequence[PlannedNetwork], problem: SchedulingProblem) -> AsRun | None:
    """How schedules are run that are of one network on several cores of this CPU: in stages."""
    (device, *others), named = problem.devices, {call.network for call in problem.calls}
    alone = not others and len(named) == 1
    here = alone and device.name == HERE and device.cores > 1
    return in_its_stages if networks and here and problem.objective == "latency" else None


def _runs_in_parts(networks: Sequence[PlannedNetwork], problem: SchedulingProblem) -> bool:
    """Whether this is of several networks at a time, or over several devices, for the least
    latency: what is run in parts, each of one network at a place."""
    several = max(len(networks), len(problem.devices)) > 1
    return bool(networks) and several and problem.objective == "latency"


def _write_pictures(folder: Path, found: Answer, traced: Mapping[str, ScheduleResult]) -> None:
    page = render_plan(found.problem, found.schedule, found.result)
    write_text(folder / TRACE, trace(traced))
    write_text(folder / PAGE, page)


def times_of(given: Mapping[str, float] | Text | None) -> Mapping[str, float]:
    """Seconds of calls by name, as they are or from a file. Raises as `read_times`."""
    if given is None or isinstance(given, Mapping):
        return named_of(given or {}, "times_s")
    return read_times(path_of(given, "times_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """What becomes of a plan where calls take other times: those of `times_s` by call, the upper
    ends of their intervals with `upper`, and on the devices in `slower` so many times as long."""

    times_s: Mapping[str, float] = field(default_factory=dict[str, float])
    upper: bool = False
    slower: Mapping[str, float] = field(default_factory=dict[str, float])

    def problem(self, plan: Plan) -> SchedulingProblem:
        """The plan's problem with these times. The other modes of a call in `times_s` are faster or
        slower by as much as the one that it has."""
        calls = (replace(c, modes=tuple(self._modes(plan, c))) for c in plan.problem.calls)
        # equal tasks take unequal times now
        return replace(plan.problem, calls=tuple(replace(call, task="") for call in calls))

    def _modes(self, plan: Plan, call: ScheduledCall) -> Iterator[Mode]:
        chosen = plan.schedule.mode_of(plan.problem, call.name)
        given_s, ratio = self.times_s.get(call.name), 1.0
        if given_s is not None and chosen.latency_s:
            ratio = given_s / chosen.latency_s
        for mode in call.modes:
            usual_s = max(mode.high_s, mode.latency_s) if self.upper else mode.latency_s
            seconds = usual_s if given_s is None else mode.latency_s * ratio
            seconds *= self.slower.get(mode.device, 1.0)
            yield replace(mode, latency_s=seconds, low_s=seconds, high_s=seconds)


def simulate_plan(path: Path, otherwise: Otherwise, out: Path | None = None) -> ScheduleResult:
    """What a plan takes with other times; its modes, cores and orders stay. With `out` a trace of
    both and a page are written there.

    Raises ModelError for what is no plan, or for times of calls or devices that it has not.
    """
    plan = read_plan(path)
    problem = plan.problem
    for kind, given, known in (
        ("call", otherwise.times_s, problem.numbers),
        ("device", otherwise.slower, problem.device),
    ):
        for name in given:
            if name not in known:
                raise ModelError(f"the plan has no {kind} {name!r}. {close_matches(name, known)}")

    really = otherwise.problem(plan)
    moved = simulate(really, plan.schedule, slowdown=slowdown_of(really, plan.schedule))
    least = min(bound(really), moved.objective)
    as_run = _as_run(plan.networks, problem)
    found = answered(really, replace(moved, bound=least, solve_s=0.0), as_run)
    found = replace(found, result=plan.told(found.result))
    if out is not None:
        planned = answered(problem, plan.schedule, as_run).result
        _write_pictures(out, found, {"plan": planned, "simulated": found.result})
    return found.result

"""What ships: the answer about the plan that won a race, the row that is kept of it, and what
`Session.optimize` returns."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.core import arguments, errors, records
from tilewright.core.accounts import KernelChange, LastRun, RoundTimes
from tilewright.core.codec import digest
from tilewright.core.forms import form_texts
from tilewright.core.output_files import attempting, replacing, write_text
from tilewright.core.results import GraphTuneResult, OptimizeResult
from tilewright.core.timings import Speedup, Timing
from tilewright.cost.floors import Peaks
from tilewright.deploy.artifact import Artifact, load_one
from tilewright.deploy.manifest import LIBRARIES, LIBRARY
from tilewright.deploy.publishing import CODES, DRAWING, FILES, REPORT, publish, staging
from tilewright.deploy.racing import LOST, Race, timing_of
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields
from tilewright.graph.plan_result import PlanResult
from tilewright.graph.tasks import TaskKey
from tilewright.hardware.environment import environment_card, read_environment
from tilewright.models.drawing import write_drawing
from tilewright.models.loaded import PreparedNetwork
from tilewright.models.source import readable_name
from tilewright.plan.coarser import coarser_estimate
from tilewright.report import displays, html, shown
from tilewright.report.task_rows import (
    call_reports,
    explain_difference,
    outside_tasks,
    seen_peaks,
    task_reports,
)
from tilewright.search.winners import DEFAULT
from tilewright.store.base import Store
from tilewright.store.known_candidates import plan_of, shipping_key

_OVER_BASELINE = "speedup_vs_baseline"
_IN_PLACE = "in_place:"
"""Before the `shipping_key` of a task, the name of its seconds in the network that shipped."""
_LONGEST = 100
"""Characters of the name of a folder."""


def shipped_figures(
    store: Store, network: PreparedNetwork, placement: records.Placement
) -> Mapping[str, float | None]:
    """The figures that are kept of what shipped last."""
    shipped = store.shipped(network.key, placement.key)
    return shipped.numbers if shipped is not None else {}


def beside_reference(
    result: OptimizeResult, ours: Timing, reference: Timing | None
) -> OptimizeResult:
    """The answer with what the reference took, where it was timed."""
    if reference is None:
        return replace(
            result,
            warnings=(
                *result.warnings,
                f"ONNX Runtime was not timed on the device: {result.reference_untimed}.",
            ),
        )
    over_reference = ours.speedup_over(reference)
    return replace(
        result,
        reference_latency_s=reference.latency_s,
        speedup_vs_reference=over_reference.value,
        speedup_vs_reference_low=over_reference.low,
        speedup_vs_reference_high=over_reference.high,
        reference_spread=reference.spread,
        reference_variation=reference.variation,
    )


def times_of_tasks(
    network: PreparedNetwork, result: PlanResult, placement: records.Placement, peaks: Peaks
) -> dict[str, Any]:
    """What every answer about a network that ran tells of it: where its time goes, by task."""
    network_s = timing_of(result).latency_s
    peaks = seen_peaks(result, peaks, placement.target)
    rows = task_reports(result, peaks, placement.target)
    tasks_s = sum((row.latency_s or 0.0) * row.count for row in rows)
    complete = all(row.latency_s is not None for row in rows)
    rest_s, rest_share = outside_tasks(rows, network_s)
    calls = len(result.plan.calls)
    between = "the launches" if placement.target.launch is not None else "the virtual machine"
    why = explain_difference(network_s, tasks_s, calls, rows, between) if complete else ""
    return {
        "model": network.model.name,
        "target": placement.tvm_target,
        "threads": placement.resources.threads,
        "tasks": rows,
        "calls": call_reports(result),
        "tasks_latency_s": tasks_s if complete else 0.0,
        "peak_flop_per_s": peaks.flop_per_s,
        "peak_bytes_per_s": peaks.bytes_per_s,
        "planned_memory_bytes": result.plan.arena_bytes,
        "weight_bytes": network.weight_bytes,
        "explanation": why,
        "environment": environment_card(read_environment(), placement),
        "rest_s": rest_s,
        "rest_share": rest_share,
    }


def answer_about(race: Race, peaks: Peaks) -> OptimizeResult:
    """The answer about the fastest."""
    ours, check = timing_of(race.winner), race.winner.check
    assert check is not None
    baseline_s, over_baseline = _baseline(race)
    result = OptimizeResult(
        **times_of_tasks(race.network, race.winner, race.placement, peaks),
        latency_s=ours.latency_s,
        baseline_latency_s=baseline_s,
        reference_latency_s=None,
        speedup_vs_reference=None,
        reference_untimed=race.untimed,
        speedup_vs_baseline=over_baseline.value if over_baseline else None,
        speedup_vs_baseline_low=over_baseline.low if over_baseline else None,
        speedup_vs_baseline_high=over_baseline.high if over_baseline else None,
        max_abs_error=check.max_abs_error,
        max_rel_error=check.max_rel_error,
        sqnr_db=check.sqnr_db,
        centred_sqnr_db=check.centred_sqnr_db,
        top1_agreement=check.top1_agreement,
        top1_rows=check.top1_rows,
        warnings=check.untold,
        coarser=coarser_estimate(race.network, race.placement, ours.latency_s),
        measurements=0,
        failures=0,
        elapsed_s=0.0,
        artifact=str(race.request.folder),
        latency_spread=ours.spread,
        latency_variation=ours.variation,
        network_key=race.network.key,
        rounds=_rounds(race),
    )
    return beside_reference(result, ours, race.reference)


def last_run(race: Race, store: Store) -> LastRun | None:
    """What shipped for the network before this run, beside what ships now."""
    shipped = store.shipped(race.network.key, race.placement.key)
    if shipped is None:
        return None
    found = LastRun(at=shipped.created_at, latency_s=shipped.latency_s)
    with suppress(errors.StoreError):
        before = plan_of(shipped, race.network, race.placement)
        return replace(found, changes=_changes(race.winner, before, shipped.numbers))
    return found


def _changes(
    winner: PlanResult, before: NetworkPlan, numbers: Mapping[str, float | None]
) -> tuple[KernelChange, ...]:
    """The tasks that have another kernel now; calls are the same ones by their names."""
    then = {call.name: call.candidate for call in before.calls}
    found: dict[TaskKey, KernelChange] = {}
    for call in winner.plan.calls:
        old = then.get(call.name, call.candidate)
        if old != call.candidate and call.task not in found:
            key = shipping_key((call.workload.key, old.forms))
            found[call.task] = KernelChange(
                task=call.name,
                before=_described(old),
                after=_described(call.candidate),
                before_s=numbers.get(f"{_IN_PLACE}{key}"),
                after_s=winner.task(call.task).in_place_s,
            )
    return tuple(found.values())


def _described(candidate: records.Candidate) -> str:
    layouts = " ".join(dict.fromkeys(form_texts(candidate.forms)))
    told = candidate.implementation, shown.pairs(dict(candidate.settings)), f"({layouts})"
    return " ".join(filter(None, told))


def _rounds(race: Race) -> tuple[RoundTimes, ...]:
    """The rounds of what ships, of the default settings where these are another network, and of the
    reference where it was timed."""
    usual = race.usual if race.usual is not race.winner else None
    timings = {
        "tilewright": race.winner.timing,
        "default settings": usual.timing if usual is not None else None,
        "ONNX Runtime": race.reference,
    }
    return tuple(
        RoundTimes(name=name, rounds_s=timing.medians_s)
        for name, timing in timings.items()
        if timing is not None
    )


def _baseline(race: Race) -> tuple[float | None, Speedup | None]:
    """The time of the default settings, and the speed-up of what ships over them; both from an
    earlier race, by the figures kept of it, where only what that shipped was timed again."""
    ours = timing_of(race.winner)
    if race.fingerprint == race.marks[DEFAULT]:
        return ours.latency_s, Speedup(value=1.0, low=1.0, high=1.0)
    if race.usual is not None:
        usual = timing_of(race.usual)
        return usual.latency_s, ours.speedup_over(usual)
    latency_s, value = race.figures.get("baseline_latency_s"), race.figures.get(_OVER_BASELINE)
    if latency_s is None or value is None:
        return latency_s, Speedup(value=latency_s / ours.latency_s) if latency_s else None
    low, high = (
        race.figures.get(f"{_OVER_BASELINE}_low"),
        race.figures.get(f"{_OVER_BASELINE}_high"),
    )
    return latency_s, Speedup(value=value, low=low, high=high)


def record(race: Race, result: OptimizeResult, store: Store) -> None:
    """Keep the plan that ships, with the figures that a repeated command and a reader ask for."""
    winner = race.winner
    losers = [f for f in race.finished[1:] if f is not race.usual]
    lost = {race.marks[f.name]: timing_of(f).latency_s for f in losers}
    numbers: dict[str, float | None] = {
        **{f"{LOST}{mark}": value for mark, value in {**race.lost, **lost}.items()},
        "baseline_latency_s": result.baseline_latency_s,
        _OVER_BASELINE: result.speedup_vs_baseline,
        f"{_OVER_BASELINE}_low": result.speedup_vs_baseline_low,
        f"{_OVER_BASELINE}_high": result.speedup_vs_baseline_high,
        "reference_latency_s": result.reference_latency_s,
        "max_rel_error": result.max_rel_error,
    }
    for key in winner.plan.tasks:
        known = winner.task(key)
        check = known.check
        numbers[f"{_IN_PLACE}{shipping_key(key)}"] = known.in_place_s
        if check is not None:
            numbers[f"error:{shipping_key(key)}"] = check.error
            numbers[f"bound:{shipping_key(key)}"] = check.bound
    store.ship(
        records.ShippedPlan(
            network_key=race.network.key,
            device_class=race.placement.device.class_key,
            resources=race.placement.resources,
            model=result.model,
            plan=plan_fields(winner.plan),
            latency_s=result.latency_s,
            numbers=numbers,
            created_at=time.time(),
        )
    )


def default_folder(model: str) -> Path:
    """`./tilewright-out/NAME`, with what a file system does not like replaced."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", readable_name(model)).strip("._") or "model"
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{digest(name, length=8)}"
    return Path("tilewright-out") / name


def write_documents(folder: Path, result: OptimizeResult) -> None:
    """Write the report, and the drawing where there is one, beside an artifact."""
    document = OptimizedNetwork(result=result, folder=folder)
    document.write_report()
    document.write_drawing()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizedNetwork:
    """A network that `optimize` or `tune` shipped: its numbers in `result`, its files in `folder`.

    At a prompt it shows the tables of the command line, in a notebook with the whole report.
    """

    result: OptimizeResult
    folder: Path

    def write_report(self) -> Path:
        """Write `report.html` beside the artifact; returns its path."""
        path = self.folder / REPORT
        write_text(path, html.render(self.result))
        return path

    def write_drawing(self) -> Path | None:
        """Write the graph tuner's choice as `layouts.onnx`, which Netron shows; returns its path.

        Where there was no graph tuner it returns None and removes an older drawing.
        """
        path, result = self.folder / DRAWING, self.result
        if not isinstance(result, GraphTuneResult) or not result.choices:
            path.unlink(missing_ok=True)
            return None
        read = {tensor for choice in result.choices for tensor in choice.inputs}
        with replacing(path) as temporary:
            write_drawing(
                temporary,
                result.model,
                result.choices,
                [choice.output for choice in result.choices if choice.output not in read],
            )
        return path

    def save(self, folder: arguments.Text) -> Path:
        """Copy library, weights, manifest, report and drawing into a folder; returns its path.

        Raises `OutputError` where a file cannot be written; what was there before then stays.
        """
        target = arguments.path_of(folder, "folder")
        libraries = (LIBRARY, *LIBRARIES.values())
        there = [name for name in libraries if (self.folder / name).exists()]
        absent = {*libraries, DRAWING, *CODES} - set(there or [LIBRARY])
        with staging(target) as made:
            for name in FILES:
                if name not in absent or (self.folder / name).exists():
                    _copy(self.folder / name, made / name, target)
            publish(made, target)
        return target

    def load(self, *, threads: int | None = None) -> Artifact:
        """The network, ready to run in this process; raises what `tilewright.load` raises."""
        return load_one(self.folder, threads)

    def _repr_html_(self) -> str:
        found = displays.page(self.result)
        assert found is not None, "every result has a page"
        return displays.notebook_html(found, report=html.render(self.result))

    def __repr__(self) -> str:
        return repr(self.result)


def _copy(source: Path, copy: Path, target: Path) -> None:
    with attempting(f"copy {source} to {target}", "What was there before is unchanged."):
        shutil.copy2(source, copy)

"""Pages that need no network: all about an optimisation, a profile, a study of tuners."""

from __future__ import annotations

import math
import re
from datetime import date
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup, escape

from tilewright.core.results import (
    GraphTuneResult,
    OptimizeResult,
    ProfileResult,
    TimedNetwork,
    TunerStudyResult,
)
from tilewright.core.sufficient_cores import CoresResult
from tilewright.report import (
    calls,
    cores,
    graph,
    islands,
    mixtures,
    neighbours,
    noise,
    regret,
    roofline,
    rounds,
    searching,
    shown,
    tasks,
    vega,
    views,
)
from tilewright.report.escape import visible
from tilewright.report.tables import Table, facts_table

if TYPE_CHECKING:
    from jinja2 import Environment

_BREAKS = re.compile(r"([/._:,])(?=[^\s/._:,])")


def render(result: OptimizeResult) -> str:
    """The whole page as text; write it as UTF-8.

    Self-contained: no request, light and dark by the reader's preference. Every name
    that came from the model is escaped.
    """
    planned = facts_table(
        "",
        (
            ("Planned for activations", None, shown.size(result.planned_memory_bytes)),
            ("Weights", None, shown.size(result.weight_bytes)),
        ),
    )
    return _page(
        "optimize.html.j2",
        result,
        result.latency_s,
        subtitle=_subtitle("Optimized", result),
        tiles=_tiles(result),
        rounds=rounds.chart(result.rounds),
        last_run=result.last_run and views.since_last_run(result.last_run, result.latency_s),
        changes=views.CHANGES.of(result.last_run.changes if result.last_run else ()),
        graph=_graph_tables(result),
        mixture=mixtures.mixture_tables(result.mixture),
        front=mixtures.chart(result.mixture),
        watched=searching.watched(result),
        warnings=noise.noise_warnings(result),
        facts=(
            ("Summary", views.optimize_summary(result)),
            ("Budget by phase", views.phases_table(result.seconds_by_phase)),
            ("Environment", views.environment_table(result.environment)),
            ("Memory", planned),
        ),
    )


def render_profile(result: ProfileResult) -> str:
    """The page of a profile: as that of an optimisation, without what a search and a race tell."""
    parts = [("Memory", result.memory and views.memory_table(result.memory))]
    parts += [("Energy", result.energy and views.energy_table(result.energy))]
    for table in neighbours.beside_tables(result.beside) if result.beside else ():
        parts.append((table.title, table))
    return _page(
        "network.html.j2",
        result,
        result.network_latency_s,
        subtitle=_subtitle("Profiled", result),
        tiles=_profile_tiles(result),
        warnings=noise.profile_warnings(result),
        facts=(
            ("Summary", views.profile_summary(result)),
            *((title, table) for title, table in parts if table),
            ("Environment", views.environment_table(result.environment)),
        ),
    )


def _page(template: str, result: TimedNetwork, network_s: float, **more: object) -> str:
    """A page about a network that ran, with what is shown of each."""
    return (
        environment()
        .get_template(template)
        .render(
            result=result,
            tasks=tasks.task_records(result),
            roofline=roofline.chart(
                result.tasks,
                peak_flop_per_s=result.peak_flop_per_s,
                peak_bytes_per_s=result.peak_bytes_per_s,
            ),
            shares=tasks.shares_chart(
                result.tasks, rest_s=result.rest_s, rest_share=result.rest_share
            ),
            network=calls.chart(result.calls, result.tasks),
            hues=calls.type_hues(result.calls),
            islands=islands.of_tasks(result.tasks),
            memory=calls.memory_chart(result.calls, result.weight_bytes),
            parts_and_whole=noise.explain_difference(
                result.tasks_latency_s, network_s, result.explanation
            ),
            **more,
        )
    )


def render_tuner_study(study: TunerStudyResult) -> str:
    """A page with the regret of every tuner, a picture per sweep, and the numbers."""
    return (
        environment()
        .get_template("study.html.j2")
        .render(
            hues=regret.hues(study.rows),
            panels=[(name, regret.chart(study.rows, name)) for name in regret.sweeps(study.rows)],
            table=views.tuner_study_table(study.rows),
        )
    )


def render_cores(study: CoresResult) -> str:
    """A page with the times of every task by the number of cores, and the numbers."""
    return (
        environment()
        .get_template("cores.html.j2")
        .render(
            model=study.model,
            hues=cores.hues(study),
            panels=cores.charts(study),
            points=cores.points_table(study),
            times=cores.times_table(study),
            notes=cores.notes(study),
        )
    )


def _graph_tables(result: OptimizeResult) -> tuple[Table, ...]:
    """The graph tuner's tables, none without it."""
    if not isinstance(result, GraphTuneResult):
        return ()
    return (
        graph.solution_table(result),
        graph.assignments_table(result),
        graph.CHOICES.of(result.choices),
    )


def _subtitle(done: str, result: TimedNetwork) -> str:
    """On what the network runs, in words, and what it computes with."""
    known = result.environment
    device = known.get("GPU") or known.get("CPU") or result.target
    types = dict.fromkeys(call.dtype for call in result.calls if call.kind == "kernel")
    precision = f", {' and '.join(types)}" if types else ""
    written = f"Written on {date.today():%d %B %Y}."
    return f"{done} for {device}, {_threads(result)}{precision}. {written}"


def _threads(result: TimedNetwork) -> str:
    return f"{result.threads} thread{'s' if result.threads > 1 else ''}"


def _tiles(result: OptimizeResult) -> tuple[tuple[str, str, str], ...]:
    return (
        ("Latency", shown.seconds(result.latency_s), _threads(result)),
        (
            "Against ONNX Runtime",
            shown.ratio(result.speedup_vs_reference),
            _between(
                result.speedup_vs_reference_low,
                result.speedup_vs_reference_high,
                result.reference_latency_s,
            )
            if not result.reference_untimed
            else "not timed on the device",
        ),
        (
            "Against default settings",
            shown.ratio(result.speedup_vs_baseline),
            _between(
                result.speedup_vs_baseline_low,
                result.speedup_vs_baseline_high,
                result.baseline_latency_s,
            ),
        ),
        (
            "Largest error",
            shown.error(result.max_abs_error),
            f"{shown.error(result.max_rel_error)} of the largest value",
        ),
    )


def _profile_tiles(result: ProfileResult) -> tuple[tuple[str, str, str], ...]:
    kernels = [call for call in result.calls if call.kind == "kernel"]
    alone = shown.seconds(result.tasks_latency_s) if result.tasks_latency_s else shown.MISSING
    peak = None if result.memory is None else result.memory.planned_bytes
    energy = result.energy
    return (
        ("Latency", shown.seconds(result.network_latency_s), _threads(result)),
        ("Sum of the tasks", alone, f"{len(result.tasks)} tasks in {len(kernels)} calls"),
        ("Memory", shown.size(peak), "planned at the peak"),
        (
            "Energy",
            shown.joules(energy.energy_j if energy else None),
            f"by {energy.method}" if energy else "not asked for",
        ),
    )


def _between(low: float | None, high: float | None, other_s: float | None) -> str:
    """The interval of a speed-up over what takes `other_s`."""
    interval = "" if low is None or high is None else f"{low:.2f} to {high:.2f}, "
    return f"{interval}over {shown.seconds(other_s)}" if other_s is not None else shown.MISSING


def environment() -> Environment:
    """The templates, with filters for values and autoescaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tilewright.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        seconds=shown.seconds,
        percent=shown.percent,
        rate=shown.rate,
        size=shown.size,
        error=shown.error,
        pairs=shown.pairs,
        whole=shown.whole,
        alone=tasks.alone,
        wrapped=_wrapped,
    )
    shared = cast(dict[str, Any], environment.globals)
    shared.update(libraries=vega.libraries, raw=_raw)
    return environment


def _finalize(value: Any) -> Any:
    """Every value on its way into the page: charts as they are, text made visible."""
    if value is None:
        return shown.MISSING
    return value if hasattr(value, "__html__") else visible(value)


def _wrapped(value: Any) -> Markup:
    """A name that may break into lines after `/`, `.`, `_` and `:`, and nowhere else."""
    text = str(escape(_finalize(value)))
    return Markup(_BREAKS.sub(r"\1<wbr>", text))


def _raw(table: Table) -> list[list[float | None]]:
    """The numbers by which a page sorts, row by row; None for text, which sorts as it is."""
    return [
        [_number(record.get(column.field)) for column in table.columns] for record in table.records
    ]


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None

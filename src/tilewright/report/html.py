"""`report.html`: one page that needs no network, with everything about an optimisation.

A study of tuners has a page of the same kind.
"""

from __future__ import annotations

import math
import re
from datetime import date
from typing import TYPE_CHECKING, Any, cast

from tilewright.core.results import GraphTuneResult, OptimizeResult, TunerStudyResult
from tilewright.report import (
    calls,
    graph,
    last_run,
    noise,
    regret,
    roofline,
    rounds,
    searching,
    shares,
    shown,
    tasks,
    vega,
    views,
)
from tilewright.report.escape import visible
from tilewright.report.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_BREAKS = re.compile(r"([/._:,])(?=[^\s/._:,])")


def render(result: OptimizeResult) -> str:
    """The whole page as text; write it as UTF-8.

    Self-contained: no request, light and dark by the reader's preference. Every name
    that came from the model is escaped.
    """
    return (
        environment()
        .get_template("optimize.html.j2")
        .render(
            result=result,
            subtitle=_subtitle(result),
            tiles=_tiles(result),
            summary=views.optimize_summary(result),
            tasks=tasks.task_records(result),
            roofline=roofline.chart(
                result.tasks,
                peak_flop_per_s=result.peak_flop_per_s,
                peak_bytes_per_s=result.peak_bytes_per_s,
            ),
            shares=shares.chart(result.tasks, rest_s=result.rest_s, rest_share=result.rest_share),
            network=calls.chart(result.calls, result.tasks),
            memory=calls.memory_chart(result.calls, result.weight_bytes),
            rounds=rounds.chart(result.rounds),
            last_run=result.last_run and last_run.sentence(result.last_run, result.latency_s),
            changes=last_run.CHANGES.of(result.last_run.changes if result.last_run else ()),
            graph=_graph_tables(result),
            watched=searching.watched(result),
            phases=views.phases_table(result.seconds_by_phase),
            environment=views.environment_table(result.environment),
            warnings=noise.noise_warnings(result),
            parts_and_whole=noise.explain_difference(
                result.tasks_latency_s, result.latency_s, result.explanation
            ),
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


def _graph_tables(result: OptimizeResult) -> tuple[Table, ...]:
    """The graph tuner's tables, none without it."""
    if not isinstance(result, GraphTuneResult):
        return ()
    return (
        graph.solution_table(result),
        graph.assignments_table(result),
        graph.CHOICES.of(result.choices),
    )


def _subtitle(result: OptimizeResult) -> str:
    """On what the network runs, in words; its target where no more is known."""
    device = result.environment.get("CPU") or result.target
    return f"Optimized for {device}, {_threads(result)}. Written on {date.today():%d %B %Y}."


def _threads(result: OptimizeResult) -> str:
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
    from markupsafe import Markup, escape

    text = str(escape(_finalize(value)))
    return Markup(_BREAKS.sub(r"\1<wbr>", text))


def _raw(table: Table) -> list[list[float | None]]:
    """The numbers by which a page sorts, row by row; None for text, which sorts as it is."""
    return [
        [_number(record.get(column.field)) for column in table.columns] for record in table.records
    ]


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None

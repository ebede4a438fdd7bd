"""Types of tensors as tables and a chart: time against noise, and what each layer has and makes of
both."""

from __future__ import annotations

from tilewright.core.mixtures import MixtureReport
from tilewright.core.results import OptimizeResult
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table, facts_table
from tilewright.report.vega import Chart

Fact = tuple[str, object, str]
"""A name, its raw value, and how people read it."""

_SILENT_DB = 10.0
"""So far behind the others a mixture without noise is drawn."""
_NONE_DB = 300.0


def mixture_tables(found: MixtureReport | None) -> tuple[Table, ...]:
    """The choice in a few lines, the front, and the layers; none where nothing was chosen."""
    if found is None:
        return ()
    return (_FRONT.of(found.front), _LAYERS.of(found.layers), _summary(found))


def precision_facts(result: OptimizeResult) -> tuple[Fact, ...]:
    """What a summary says of noise, of the largest element, and of another precision, as far as
    that is known."""
    return (*_ratio(result), *_top1(result), *_coarser(result))


def _ratio(result: OptimizeResult) -> tuple[Fact, ...]:
    """The ratio of signal to noise, where it is known."""
    if result.sqnr_db is None:
        return ()
    text = shown.decibels(result.sqnr_db, result.centred_sqnr_db)
    return (("signal to noise", result.sqnr_db, text),)


def _top1(result: OptimizeResult) -> tuple[Fact, ...]:
    """How often the largest element is the reference's, where that is known."""
    if result.top1_agreement is None:
        return ()
    rows = f"{shown.whole(result.top1_rows)} row{'' if result.top1_rows == 1 else 's'}"
    text = f"agrees in {shown.percent(result.top1_agreement)} of {rows}"
    return (("largest element", result.top1_agreement, text),)


def _coarser(result: OptimizeResult) -> tuple[Fact, ...]:
    """What another precision is estimated to take."""
    found = result.coarser
    if found is None:
        return ()
    text = (
        f"about {shown.seconds(found.latency_s)} with {' and '.join(found.types)}, "
        f"{shown.ratio(found.speedup)}, by estimates; not measured"
    )
    return ((f"--precision {found.precision}", found.latency_s, text),)


def chart(found: MixtureReport | None) -> Chart | None:
    """Time against the ratio of signal to noise, the chosen mixture marked, and the ratio that the
    compiled network shows; None with fewer than two mixtures."""
    if found is None or len(found.front) < 2:
        return None
    noisy = [point.sqnr_db for point in found.front if point.sqnr_db < _NONE_DB]
    end_db = max(noisy, default=0.0) + _SILENT_DB
    points = [
        {
            "ratio_db": min(point.sqnr_db, end_db),
            "time_s": point.predicted_s,
            "ratio": shown.decibels(point.sqnr_db) if point.sqnr_db < _NONE_DB else "no noise",
            "time": shown.seconds(point.predicted_s),
            "colour": "var(--best)" if point.chosen else "var(--s0)",
            "size": 140 if point.chosen else 60,
            "label": "chosen" if point.chosen else "single precision" * (point.sqnr_db >= _NONE_DB),
        }
        for point in found.front
    ]
    ratio = shown.decibels(found.measured_sqnr_db)
    seen = found.measured_sqnr_db is not None and found.measured_sqnr_db <= end_db
    rule = {"ratio_db": found.measured_sqnr_db, "ratio": ratio, "label": f"measured {ratio}"}
    return Chart(
        name="mixture",
        label="Time against noise",
        rows={"front": points, "measured": [rule] if seen else []},
    )


def _summary(found: MixtureReport) -> Table:
    predicted, measured = found.predicted_sqnr_db, found.measured_sqnr_db
    inputs = "given inputs" if found.calibrated else "inputs that were drawn"
    return facts_table(
        "Precision",
        (
            ("allowed", found.allowed, found.allowed or shown.MISSING),
            ("used of it", found.used, shown.percent(found.used)),
            ("noise predicted", predicted, shown.decibels(predicted)),
            ("noise measured", measured, shown.decibels(measured)),
            ("correction", found.correction, f"{shown.ratio(found.correction)}, on {inputs}"),
            ("chosen again", found.corrections, shown.whole(found.corrections)),
            ("gap", found.gap, shown.percent(found.gap)),
            ("solving", found.solve_s, shown.seconds(found.solve_s)),
            ("measuring or reading noise", found.noise_s, shown.seconds(found.noise_s)),
            ("kept in float32", list(found.kept), ", ".join(found.kept) or "none"),
        ),
    )


_FRONT = Heading(
    title="Time against noise",
    columns=(
        Column(field="predicted_s", label="predicted", show=shown.seconds, number=True),
        Column(field="sqnr_db", label="signal to noise", show=shown.decibels, number=True),
        Column(field="chosen", label="chosen"),
    ),
)
_LAYERS = Heading(
    title="Precision by layer",
    columns=(
        Column(field="call", label="call"),
        Column(field="implementation", label="algorithm"),
        Column(field="multiplied", label="multiplied in"),
        Column(field="unit", label="unit"),
        Column(field="stored", label="stored in"),
        Column(field="time_s", label="time", show=shown.seconds, number=True),
        Column(field="noise_share", label="share of noise", show=shown.percent, number=True),
    ),
)

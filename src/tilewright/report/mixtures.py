"""Types of tensors as tables: time against noise, and what each layer has and makes of both."""

from __future__ import annotations

from tilewright.core.mixtures import MixtureReport
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table, facts_table


def mixture_tables(found: MixtureReport | None) -> tuple[Table, ...]:
    """The choice in a few lines, the front, and the layers; none where nothing was chosen."""
    if found is None:
        return ()
    return (_FRONT.of(found.front), _LAYERS.of(found.layers), _summary(found))


def _summary(found: MixtureReport) -> Table:
    predicted, measured = found.predicted_sqnr_db, found.measured_sqnr_db
    inputs = "given inputs" if found.calibrated else "inputs that were drawn"
    return facts_table(
        "Precision",
        (
            ("noise predicted", predicted, shown.decibels(predicted)),
            ("noise measured", measured, shown.decibels(measured)),
            ("correction", found.correction, f"{shown.ratio(found.correction)}, on {inputs}"),
            ("chosen again", found.corrections, shown.whole(found.corrections)),
            ("gap", found.gap, shown.percent(found.gap)),
            ("solving", found.solve_s, shown.seconds(found.solve_s)),
            ("measuring noise", found.noise_s, shown.seconds(found.noise_s)),
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
        Column(field="stored", label="stored in"),
        Column(field="time_s", label="time", show=shown.seconds, number=True),
        Column(field="noise_share", label="share of noise", show=shown.percent, number=True),
    ),
)

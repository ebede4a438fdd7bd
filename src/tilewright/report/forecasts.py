"""What `collect`, `fit` and `predict` answer, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright.core.predictions import (
    CollectResult,
    ExplainResult,
    PredictResult,
    SweepResult,
    ThreadsResult,
)
from tilewright.report import shown
from tilewright.report.features import feature_label, feature_value
from tilewright.report.tables import Column, Heading, Table, facts_table, records_of

_OPERATOR_COLUMNS = (
    Column(field="name", label="task"),
    Column(field="family", label="family"),
    Column(field="count", label="count", number=True),
    Column(field="latency_s", label="latency", show=shown.seconds, number=True),
    Column(field="low_s", label="from", show=shown.seconds, number=True),
    Column(field="high_s", label="to", show=shown.seconds, number=True),
    Column(field="source", label="source"),
    Column(field="implementation", label="implementation"),
)
_METRIC_COLUMNS = (
    Column(field="energy_j", label="energy", show=shown.joules, number=True),
    Column(field="power_w", label="power", show=lambda value: shown.rate(value, "W"), number=True),
    Column(field="peak_memory_bytes", label="peak memory", show=shown.size, number=True),
)
FITTED = Heading(
    title="Predictors",
    columns=(
        Column(field="family", label="family"),
        Column(field="metric", label="metric"),
        Column(field="rows", label="rows", show=shown.whole, number=True),
        Column(field="reach", label="90 % within", show=shown.percent, number=True),
        Column(field="data_hash", label="data"),
        Column(field="error", label="note"),
    ),
)
"""The predictors that were fitted."""
_FACTOR_COLUMNS = (
    Column(field="name", label="factor"),
    Column(field="importance", label="importance", show=shown.percent, number=True),
    Column(field="rank_correlation", label="rank correlation", show=shown.number, number=True),
    Column(field="effects", label="time of each value ÷ the best", show=shown.pairs),
)
_EXCHANGE_COLUMNS = (
    Column(field="name", label="factor"),
    Column(
        field="permutation_importance",
        label="permutation importance",
        show=shown.percent,
        number=True,
    ),
    Column(field="partial_dependence", label="partial dependence", show=shown.pairs),
)


def _of_fact(field: str, record: Mapping[str, Any]) -> str:
    """A value of the feature that the row's `fact` names."""
    return feature_value(record["fact"], record[field])


_TURNING_COLUMNS = (
    Column(field="parameter", label="parameter"),
    Column(field="value", label="from", number=True),
    Column(field="fact", label="fact", show=feature_label),
    Column(field="before", label="before", show_record=partial(_of_fact, "before"), number=True),
    Column(field="after", label="after", show_record=partial(_of_fact, "after"), number=True),
    Column(field="ratio", label="time per FLOP", show=shown.ratio, number=True),
)
_CONFIRMED_COLUMNS = (
    Column(field="measured_ratio", label="measured", show=shown.ratio, number=True),
    Column(field="confirmed", label="confirmed"),
)
_DIFFERENCE_COLUMNS = (
    Column(field="fact", label="fact", show=feature_label),
    Column(field="first", label="first", show_record=partial(_of_fact, "first"), number=True),
    Column(field="second", label="second", show_record=partial(_of_fact, "second"), number=True),
    Column(field="share", label="part of the gap", show=shown.percent, number=True),
)
_MOST_ROWS = 12


def collected(result: CollectResult) -> Table:
    """What was measured, in a few lines."""
    several = len({one.device_class for one in result.shares}) > 1
    return facts_table(
        "Collected",
        (
            ("measured", result.samples, shown.whole(result.samples)),
            ("copies and probes beside", result.beside, shown.whole(result.beside)),
            ("known before", result.known, shown.whole(result.known)),
            ("failed", result.failures, shown.whole(result.failures)),
            *(
                (
                    f"{one.model} on {one.device_class}" if several else one.model,
                    one.share,
                    f"{one.tasks} of {one.tasks_of_network} tasks, {shown.percent(one.share)} of "
                    "its time",
                )
                for one in result.shares
            ),
            ("complete", result.complete, "yes" if result.complete else "no, the budget ended"),
            ("time", result.elapsed_s, shown.seconds(result.elapsed_s)),
        ),
    )


def operators_table(result: PredictResult) -> Table:
    """The predicted kernels, those that take most first; with energy, power and memory where one
    has any."""
    ordered = sorted(result.operators, key=lambda operator: -operator.latency_s * operator.count)
    known = [
        column
        for column in _METRIC_COLUMNS
        if any(getattr(operator, column.field) is not None for operator in ordered)
    ]
    columns = (*_OPERATOR_COLUMNS[:6], *known, *_OPERATOR_COLUMNS[6:])
    return Table(columns=columns, records=records_of(ordered), title="Operators")


def forecast_summary(result: PredictResult) -> Table:
    """What is predicted of the network, in a few lines."""
    network = result.network
    if network is None:
        return facts_table(result.model, ())
    rows: list[tuple[str, float | None, str]] = []
    if network.latency_s is not None:
        low, high = shown.seconds(network.latency_low_s), shown.seconds(network.latency_high_s)
        rows.append(("latency", network.latency_s, shown.seconds(network.latency_s)))
        rows.append(("90 % interval", network.latency_high_s, f"{low} to {high}"))
    if network.peak_memory_bytes is not None:
        size = shown.size(network.peak_memory_bytes)
        rows.append(("peak memory", network.peak_memory_bytes, size))
    unknown = f"unknown: {result.energy_reason}"
    if "power" in result.metrics:
        power = unknown if network.power_w is None else shown.rate(network.power_w, "W")
        rows.append(("power", network.power_w, power))
    if network.power_low_w is not None:
        low, high = (shown.rate(end, "W") for end in (network.power_low_w, network.power_high_w))
        rows.append(("90 % interval of power", network.power_high_w, f"{low} to {high}"))
    if "energy" in result.metrics:
        energy = unknown if network.energy_j is None else shown.joules(network.energy_j)
        rows.append(("energy", network.energy_j, energy))
    if network.energy_low_j is not None:
        low, high = shown.joules(network.energy_low_j), shown.joules(network.energy_high_j)
        rows.append(("90 % interval of energy", network.energy_high_j, f"{low} to {high}"))
    if result.precision != "float32":
        rows.append(("precision", None, result.precision))
    return facts_table(result.model, rows)


def explained_tables(found: ExplainResult) -> tuple[Table, ...]:
    """What matters, where times jump, and what sets two operators apart; the first rows of each."""
    if found.functions:
        return _cuda_tables(found)
    measured = any(point.confirmed is not None for point in found.turning_points)
    tables = [
        Table(
            columns=_FACTOR_COLUMNS,
            records=tuple(
                {**record, "effects": _rounded(record["effects"])}
                for record in records_of(found.factors)
            ),
            title="Factors",
        ),
        Table(
            columns=_EXCHANGE_COLUMNS,
            records=tuple(
                {**record, "partial_dependence": _rounded(record["partial_dependence"])}
                for record in records_of(found.factors)
                if record["partial_dependence"]
            ),
            title="Factors, one varied at a time",
        ),
        Table(
            columns=(*_TURNING_COLUMNS, *(_CONFIRMED_COLUMNS if measured else ())),
            records=records_of(found.turning_points[:_MOST_ROWS]),
            title="Turning points",
        ),
    ]
    if found.ratio is not None:
        tables.append(
            Table(
                columns=_DIFFERENCE_COLUMNS,
                records=records_of(found.differences[:_MOST_ROWS]),
                title=f"{shown.ratio(found.ratio)} the other's time, because of",
            )
        )
    return tuple(tables)


def _cuda_tables(found: ExplainResult) -> tuple[Table, ...]:
    """The facts of the main function, where waves begin, and in what two operators differ."""
    facts: list[tuple[str, float | str, str]] = [
        (fact, value, _fact(value)) for fact, value in found.facts.items()
    ]
    if found.latency_s is not None:
        facts.append(("roofline", found.latency_s, shown.seconds(found.latency_s)))
    tables = [
        facts_table(found.name, facts),
        Table(
            columns=_TURNING_COLUMNS,
            records=records_of(found.turning_points[:_MOST_ROWS]),
            title="Turning points",
        ),
    ]
    if found.differences:
        columns = (
            _DIFFERENCE_COLUMNS[0],
            Column(field="first", label="first", show=_fact, number=True),
            Column(field="second", label="second", show=_fact, number=True),
        )
        records = records_of(found.differences)
        tables.append(Table(columns=columns, records=records, title="The two differ in"))
    return tuple(tables)


def _fact(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return shown.whole(value) if isinstance(value, int) else shown.number(value)


def _rounded(effects: Mapping[str, float]) -> dict[str, float]:
    return {value: round(effect, 2) for value, effect in effects.items()}


def threads_table(found: ThreadsResult) -> Table:
    """The measured numbers of threads, the best one marked."""
    return Table(
        columns=(
            Column(field="threads", label="threads", number=True),
            Column(field="latency_s", label="latency", show=shown.seconds, number=True),
            Column(field="best", label=""),
        ),
        records=tuple(
            {**record, "best": "best" if record["threads"] == found.best_threads else ""}
            for record in records_of(found.measured)
        ),
        title=found.model,
    )


_ON_GPUS = (
    Column(field="power_w", label="power", show=partial(shown.number, suffix=" W"), number=True),
    Column(field="memory_bytes", label="memory", show=shown.size, number=True),
)


def sweep_table(found: SweepResult) -> Table:
    """An operator along one parameter, with the facts that change along it."""
    facts = sorted({fact for row in found.rows for fact in row.facts})
    columns = (
        Column(field="value", label=found.parameter, number=True),
        Column(field="latency_s", label="measured", show=shown.seconds, number=True),
        Column(field="predicted_s", label="predicted", show=shown.seconds, number=True),
        Column(field="of_roof", label="of roof", show=shown.percent, number=True),
        *(column for column in _ON_GPUS if any(getattr(row, column.field) for row in found.rows)),
        Column(field="implementation", label="implementation"),
        *(
            Column(
                field=fact,
                label=feature_label(fact),
                show=partial(feature_value, fact),
                number=True,
            )
            for fact in facts
        ),
    )
    records = tuple(
        {
            **record,
            "of_roof": row.roof_s / row.latency_s if row.roof_s and row.latency_s else None,
            **{fact: row.facts.get(fact) for fact in facts},
        }
        for row, record in zip(found.rows, records_of(found.rows), strict=True)
    )
    title = ", ".join(filter(None, (found.operator, found.layout)))
    return Table(columns=columns, records=records, title=title)

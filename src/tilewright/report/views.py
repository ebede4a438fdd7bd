"""Results as tables, one function per kind of result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tilewright.core import predictions, timings
from tilewright.core.accounts import LastRun
from tilewright.core.comparisons import CompareResult
from tilewright.core.results import (
    EnergyUse,
    ImportResult,
    MemoryUse,
    OptimizeResult,
    ProfileResult,
    TaskSearchReport,
    TunerStudyRow,
)
from tilewright.report import mixtures, shown
from tilewright.report.comparison import coarsest, counts
from tilewright.report.tables import Column, Heading, Table, facts_table, record_of, records_of


def optimize_summary(result: OptimizeResult) -> Table:
    """The outcome in a few lines."""
    over_baseline = shown.speedup(
        result.speedup_vs_baseline,
        result.speedup_vs_baseline_low,
        result.speedup_vs_baseline_high,
    )
    over_reference = shown.speedup(
        result.speedup_vs_reference,
        result.speedup_vs_reference_low,
        result.speedup_vs_reference_high,
    )
    return facts_table(
        result.model,
        (
            (
                "latency",
                result.latency_s,
                f"{shown.seconds(result.latency_s)}{_varied(result.latency_variation)}",
            ),
            (
                "default settings",
                result.baseline_latency_s,
                _with_speedup(result.baseline_latency_s, over_baseline),
            ),
            (
                "ONNX Runtime",
                result.reference_latency_s,
                "not timed on the device"
                if result.reference_untimed
                else _with_speedup(result.reference_latency_s, over_reference)
                + _varied(result.reference_variation),
            ),
            ("largest error", result.max_abs_error, _error(result)),
            *mixtures.precision_facts(result),
            ("threads", result.threads, str(result.threads)),
            ("target", result.target, result.target),
            ("measurements", result.measurements, _measurements(result)),
            ("elapsed", result.elapsed_s, shown.seconds(result.elapsed_s)),
            ("artifact", result.artifact, result.artifact),
        ),
    )


def _with_speedup(seconds: float | None, speedup: str) -> str:
    if seconds is None or speedup == shown.MISSING:
        return shown.seconds(seconds)
    return f"{shown.seconds(seconds)}, speed-up {speedup}"


def _varied(variation: float) -> str:
    if variation <= timings.NOISY_ROUNDS:
        return ""
    return f", varied by {shown.percent(variation)} between rounds"


def _error(result: OptimizeResult) -> str:
    absolute = shown.error(result.max_abs_error)
    if result.max_rel_error is None:
        return absolute
    return f"{absolute} ({shown.error(result.max_rel_error)} of the largest value)"


def _measurements(result: OptimizeResult) -> str:
    return f"{shown.whole(result.measurements)}, {shown.whole(result.failures)} failed"


CHANGES = Heading(
    title="Tasks with another kernel",
    columns=(
        Column(field="task", label="task"),
        Column(field="before_s", label="then", show=shown.seconds, number=True),
        Column(field="after_s", label="now", show=shown.seconds, number=True),
        Column(field="before", label="kernel then"),
        Column(field="after", label="kernel now"),
    ),
)
"""Where the kernels of a network are others than in its last run."""


def since_last_run(last: LastRun, latency_s: float) -> str:
    """How fast a network was in its last run and is now, and how many kernels are others."""
    count = len(last.changes)
    changed = f"{count or 'no'} task{'' if count == 1 else 's'}"
    return (
        f"Last run ({datetime.fromtimestamp(last.at):%d %B %Y, %H:%M}): "
        f"{shown.seconds(last.latency_s)}, now {shown.seconds(latency_s)} "
        f"({shown.ratio(last.latency_s / latency_s)} the speed); {changed} with another kernel."
    )


_GAIN = Column(
    field="gain",
    label="gain",
    number=True,
    show_record=lambda row: shown.speedup(row["gain"], row["gain_low"], row["gain_high"]),
)


def searches_table(searches: Sequence[TaskSearchReport]) -> Table:
    """What the search did for every task it tried something for, most gained first."""
    columns = (
        Column(field="task", label="task"),
        Column(field="first_s", label="default", show=shown.seconds, number=True),
        Column(field="best_s", label="best", show=shown.seconds, number=True),
        _GAIN,
        Column(field="measurements", label="measured", show=shown.whole, number=True),
        Column(field="failures", label="failed", show=shown.whole, number=True),
        Column(field="converged", label="converged"),
    )
    tried = [search for search in searches if search.measurements or search.failures]
    ordered = sorted(tried, key=lambda search: -(search.gain or 0.0))
    records = ({k: v for k, v in record_of(s).items() if k != "trials"} for s in ordered)
    return Table(columns=columns, records=tuple(records), title="Search")


def tuner_study_table(rows: Sequence[TunerStudyRow]) -> Table:
    """Median regret, one row per tuner and sweep, one column per share of the space measured.

    The raw values are fractions, under the field names `regret_SHARE` and `p90_SHARE`.
    """
    shares = sorted({row.measured_share for row in rows})
    columns = (
        Column(field="sweep", label="sweep"),
        Column(field="tuner", label="tuner"),
        *(
            Column(
                field=f"regret_{share:g}",
                label=f"after {shown.percent(share)}",
                show=_regret,
                number=True,
            )
            for share in shares
        ),
    )
    records: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row.measured_share):
        record = records.setdefault(
            (row.sweep, row.tuner), {"sweep": row.sweep, "tuner": row.tuner}
        )
        record[f"regret_{row.measured_share:g}"] = row.regret_median
        record[f"p90_{row.measured_share:g}"] = row.regret_p90
    in_order = dict.fromkeys((row.sweep, row.tuner) for row in rows)
    return Table(
        columns=columns,
        records=tuple(records[pair] for pair in in_order),
        title="Median regret by share of the space measured",
    )


def _regret(fraction: float | None) -> str:
    return shown.percent(fraction) if fraction is None or fraction >= 5e-4 else "0 %"


SUBGRAPH_STUDY = Heading(
    title="Operator and subgraph level",
    columns=(
        Column(field="task", label="task"),
        Column(field="op_level_s", label="operator level", show=shown.seconds, number=True),
        Column(field="subgraph_level_s", label="subgraph level", show=shown.seconds, number=True),
        _GAIN,
    ),
)
"""One row per task: tuned as a bare operator, tuned as the fused subgraph."""


def profile_summary(result: ProfileResult) -> Table:
    """The network as a whole."""
    facts = (
        ("network", result.network_latency_s, shown.seconds(result.network_latency_s)),
        ("sum of the tasks", result.tasks_latency_s, shown.seconds(result.tasks_latency_s)),
        ("threads", result.threads, str(result.threads)),
        ("target", result.target, result.target),
        (
            "measured peak",
            result.peak_flop_per_s,
            f"{shown.rate(result.peak_flop_per_s / 1e9)} GFLOP/s, "
            f"{shown.rate(result.peak_bytes_per_s / 1e9)} GB/s",
        ),
    )
    return facts_table(result.model, facts)


def memory_table(memory: MemoryUse) -> Table:
    """Memory at the peak, planned and measured, and what it is for."""
    told = f"{shown.size(memory.measured_bytes)} ({memory.method})"
    measured = memory.reason if memory.measured_bytes is None else told
    facts: list[tuple[str, Any, str]] = [
        ("planned peak", memory.planned_bytes, shown.size(memory.planned_bytes)),
        ("measured peak", memory.measured_bytes, measured),
        ("weights, packed", memory.weight_bytes, shown.size(memory.weight_bytes)),
        ("intermediates", memory.arena_bytes, shown.size(memory.arena_bytes)),
        ("workspaces", memory.workspace_bytes, shown.size(memory.workspace_bytes)),
        ("inputs and outputs", memory.interface_bytes, shown.size(memory.interface_bytes)),
        ("code", memory.code_bytes, shown.size(memory.code_bytes)),
    ]
    return facts_table("Memory", facts)


def energy_table(energy: EnergyUse) -> Table:
    """Energy and power with the meter that told them, or why there is none."""
    facts: list[tuple[str, Any, str]] = [
        ("energy per run", energy.energy_j, shown.joules(energy.energy_j)),
        ("power", energy.power_w, shown.rate(energy.power_w, "W")),
        ("idle power", energy.idle_power_w, shown.rate(energy.idle_power_w, "W")),
        ("meter", energy.method, energy.method),
    ]
    if energy.runs:
        count, seconds = len(energy.samples_j), shown.seconds(energy.window_s)
        text = f"{shown.whole(energy.runs)} in {count} windows of {seconds}"
        facts.append(("runs", energy.runs, text))
    if energy.reason:
        facts.append(("missing", energy.reason, energy.reason))
    return facts_table("Energy", facts)


def _peer(row: Mapping[str, Any]) -> str:
    """With how it computes, where it had a choice."""
    return f"{row['peer']} ({row['mode']})" if row.get("mode") else str(row["peer"])


def _speedup(row: Mapping[str, Any]) -> str:
    return shown.speedup(row["speedup"], row["speedup_low"], row["speedup_high"])


def _both_top1(row: Mapping[str, Any]) -> str:
    ours, theirs = (shown.percent(row.get(f"{whose}top1_agreement")) for whose in ("", "peer_"))
    return f"{ours}, theirs {theirs}"


COMPARED = Heading(
    title="Comparison",
    columns=(
        Column(field="model", label="model"),
        Column(field="peer", label="peer", show_record=_peer),
        Column(field="precision", label="precision"),
        Column(field="default_precision", label="peer's default"),
        Column(field="own_precision", label="our precision"),
        Column(field="threads", label="threads", number=True),
        Column(field="latency_s", label="ours", show=shown.seconds, number=True),
        Column(field="peer_latency_s", label="theirs", show=shown.seconds, number=True),
        Column(field="speedup", label="speed-up", show_record=_speedup, number=True),
        Column(field="max_rel_error", label="error", show=shown.error, number=True),
        Column(field="peer_rel_error", label="their error", show=shown.error, number=True),
        Column(field="peer_error", label="beside ours"),
        Column(field="top1_agreement", label="largest agrees", show_record=_both_top1, number=True),
    ),
)
"""One row per model, peer and precision."""


def _precisions(result: CompareResult) -> str:
    """What our networks are in, of those that have a peer in it if any has."""
    judged = [row for row in result.rows if counts(row)] or result.rows
    return " or ".join(dict.fromkeys(map(coarsest, judged)))


def compare_verdict(result: CompareResult) -> str:
    """The geometric mean in a sentence."""
    if result.geomean_speedup is None:
        return f"No peer ran in {_precisions(result)}, so there is no geometric mean."
    mean = shown.speedup(
        result.geomean_speedup, result.geomean_speedup_low, result.geomean_speedup_high
    )
    peers = f"the fastest {_precisions(result)} peer of each model"
    return f"Geometric mean of the speed-ups over {peers}: {mean}"


def error_verdict(result: CompareResult) -> tuple[str, ...]:
    """The same over peers of any precision whose error is no more than ours, where that is another
    mean."""
    mean = result.geomean_at_no_more_error
    if mean is None or mean == result.geomean_speedup:
        return ()
    low, high = result.geomean_at_no_more_error_low, result.geomean_at_no_more_error_high
    peers = "the fastest peer of each model, in any precision, with no more error than ours"
    return (f"Over {peers}: {shown.speedup(mean, low, high)}",)


CHECKS = Heading(
    title="Checks",
    columns=(
        Column(field="status", label="status"),
        Column(field="name", label="check"),
        Column(field="detail", label="finding"),
        Column(field="advice", label="advice"),
    ),
)
"""What `doctor` found."""


def _vector(vector_bytes: int) -> str:
    return f"{vector_bytes * 8} bit" if vector_bytes else shown.MISSING


TARGETS = Heading(
    title="Targets",
    columns=(
        Column(field="name", label="target"),
        Column(field="usable", label="usable"),
        Column(field="threads", label="threads", number=True),
        Column(field="vector_bytes", label="vector", show=_vector, number=True),
        Column(field="detail", label="detail"),
    ),
)
"""What `--target` takes here."""


CONTROLS = Heading(
    title="Controls",
    columns=(
        Column(field="name", label="control"),
        Column(field="settable", label="settable"),
        Column(field="value", label="now"),
        Column(field="range", label="range"),
        Column(field="how", label="how"),
        Column(field="reason", label="why not"),
    ),
)
"""What can be set on this machine."""


DATABASE = Heading(
    title="Database",
    columns=(
        Column(field="path", label="path"),
        Column(field="schema_version", label="schema", number=True),
        *(
            Column(field=name, label=name, show=shown.whole, number=True)
            for name in ("measurements", "failures", "devices", "tasks", "runs")
        ),
        Column(field="size_bytes", label="size", show=shown.size, number=True),
    ),
)
"""What the database holds."""


CACHE = Heading(
    title="Cache",
    columns=(
        Column(field="cache", label="folder"),
        Column(field="cache_bytes", label="size", show=shown.size, number=True),
        Column(field="cache_limit_bytes", label="limit", show=shown.size, number=True),
    ),
)
"""Where models are kept that can be made again, and how much they take."""


def environment_table(environment: Mapping[str, str]) -> Table:
    """Machine and versions."""
    return facts_table(
        "Environment", tuple((name, value, value) for name, value in environment.items())
    )


def import_table(taken: ImportResult) -> Table:
    """How many records of a file or database came in."""
    named = ("lines", "imported", "known", "measurements", "failures", "workloads")
    columns = (
        Column(field="kind", label="kind"),
        *(Column(field=name, label=name, show=shown.whole, number=True) for name in named),
    )
    record = {name: value for name, value in record_of(taken).items() if name != "skipped"}
    return Table(columns=columns, records=(record,), title="Import")


def counts_table(counts: Mapping[str, Any]) -> Table:
    """Numbers, sizes and texts by name, in one row."""
    columns = tuple(
        Column(
            field=name,
            label=name.removesuffix("_bytes"),
            show=_shower(name, value),
            number=not isinstance(value, str),
        )
        for name, value in counts.items()
    )
    return Table(columns=columns, records=(counts,))


def _shower(name: str, value: object) -> Callable[[Any], str]:
    if isinstance(value, str):
        return str
    return shown.size if name.endswith("_bytes") else shown.whole


SKIPPED = Heading(
    title="Skipped",
    columns=(
        Column(field="line", label="line", show=shown.whole, number=True),
        Column(field="reason", label="reason"),
    ),
)
"""The lines of a file that were not taken in."""


def phases_table(seconds_by_phase: Mapping[str, float]) -> Table:
    """Where the budget went."""
    total = sum(seconds_by_phase.values())
    columns = (
        Column(field="phase", label="phase"),
        Column(field="seconds", label="time", show=shown.seconds, number=True),
        Column(field="share", label="share", show=shown.percent, number=True),
    )
    records = tuple(
        {"phase": phase, "seconds": spent, "share": spent / total if total > 0 else 0.0}
        for phase, spent in seconds_by_phase.items()
    )
    return Table(columns=columns, records=records, title="Budget by phase")


_EVALUATION_COLUMNS = (
    Column(field="target", label="target"),
    Column(field="group", label="group"),
    Column(field="n", label="rows", number=True),
    Column(field="mape", label="mean error", show=shown.percent, number=True),
    Column(field="median_ape", label="median", show=shown.percent, number=True),
    Column(field="p90_ape", label="90th percentile", show=shown.percent, number=True),
    Column(field="within_5", label="within 5 %", show=shown.percent, number=True),
    Column(field="within_10", label="within 10 %", show=shown.percent, number=True),
    Column(field="within_20", label="within 20 %", show=shown.percent, number=True),
    Column(field="spearman", label="rank correlation", show=shown.rate, number=True),
    Column(field="coverage_90", label="in 90 % interval", show=shown.percent, number=True),
)


def evaluation_table(rows: Sequence[predictions.EvaluateRow]) -> Table:
    """How good predictions are, by family where there are several, by target and group."""
    families = {row.family for row in rows}
    columns = (Column(field="family", label="family"),) if len(families) > 1 else ()
    return Table(
        columns=(*columns, *_EVALUATION_COLUMNS), records=records_of(rows), title="Predictions"
    )


ERRORS = Heading(title="", columns=_EVALUATION_COLUMNS[1:])
"""The same of one family and target, by group."""

PICKS = Heading(
    title="Search by prediction",
    columns=(
        Column(field="group", label="group"),
        Column(field="shots", label="samples", number=True),
        Column(field="verified", label="guesses measured", number=True),
        Column(field="regret", label="slower than the best", show=shown.percent, number=True),
    ),
)
"""What a search by prediction finds, by group."""

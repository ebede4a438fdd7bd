"""What `serve` answers, as tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tilewright.core.serving import Load, ServeResult, ServerStatistics
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table


def _per_second(rate: float | None) -> str:
    return shown.rate(rate, "1/s")


def _batches(counts: dict[int, int]) -> str:
    """How often so many requests were computed at a time: `12 × 1, 30 × 4`."""
    return ", ".join(f"{count} × {size}" for size, count in counts.items())


_LOADS = (
    Column(field="instances", label="instances"),
    Column(field="network", label="network"),
    Column(field="throughput_per_s", label="in time", show=_per_second, number=True),
    Column(field="latency_p50_s", label="half within", show=shown.seconds, number=True),
    Column(field="latency_p90_s", label="90 %", show=shown.seconds, number=True),
    Column(field="latency_p99_s", label="99 %", show=shown.seconds, number=True),
    Column(field="missed", label="missed", number=True),
    Column(field="failed", label="failed", number=True),
)
_NETWORKS = Heading(
    title="Requests",
    columns=(
        Column(field="network", label="network"),
        *(
            Column(field=fate, label=fate, number=True)
            for fate in ("answered", "late", "missed", "failed", "cancelled", "refused", "retried")
        ),
        Column(field="batches", label="batches", show=_batches),
        Column(field="latency_p50_s", label="half within", show=shown.seconds, number=True),
        Column(field="latency_p99_s", label="99 %", show=shown.seconds, number=True),
    ),
)
_INSTANCES = Heading(
    title="Instances",
    columns=(
        Column(field="instance", label="instance", number=True),
        Column(field="device", label="device"),
        Column(field="cores", label="cores", show=lambda cores: ", ".join(map(str, cores))),
        Column(field="state", label="state"),
        Column(field="restarts", label="restarts", number=True),
        Column(field="answered", label="answered", number=True),
        Column(field="busy", label="busy", show=shown.percent, number=True),
    ),
)


_OPTIONS = Heading(
    title="Instances that were weighed",
    columns=(
        Column(field="instances", label="instances"),
        Column(field="requests_per_s", label="promised", show=_per_second, number=True),
        Column(field="seconds", label="all within", show=shown.seconds, number=True),
        Column(field="in_time", label="in time", show=lambda in_time: "" if in_time else "no"),
        Column(field="measured", label="measured", show=shown.ratio, number=True),
        Column(field="chosen", label="chosen", show=lambda chosen: "yes" if chosen else ""),
    ),
)


def loads_table(result: ServeResult) -> Table:
    """What each network had, and beside it one after the other on all cores."""
    loads = [result.load, *([result.sequential] if result.sequential else [])]
    return Table(
        columns=_LOADS, records=tuple(record for load in loads for record in _records(load))
    )


def _records(load: Load) -> list[dict[str, Any]]:
    return [{"instances": load.instances, **asdict(each)} for each in load.networks]


def statistics_tables(statistics: ServerStatistics) -> tuple[Table, Table]:
    """What became of requests, and the instances."""
    return _NETWORKS.of(statistics.networks), _INSTANCES.of(statistics.instances)


def options_tables(result: ServeResult) -> tuple[Table, ...]:
    """What could have served, where anything was weighed."""
    return (_OPTIONS.of(result.options),) if result.options else ()


def compared(result: ServeResult) -> str:
    """How the load is beside one request after the other."""
    if result.sequential is None:
        return ""
    return (
        f"{shown.ratio(result.speedup)} the throughput of one request after the other on all "
        f"cores ({result.sequential.instances})."
    )

"""An artifact as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.core.artifacts import ArtifactPort, ArtifactResult, ShapesResult
from tilewright.report import mixtures, shown, tasks
from tilewright.report.tables import Column, Heading, Table, facts_table


def _over(row: Mapping[str, Any]) -> str:
    low, high = row["speedup_vs_reference_low"], row["speedup_vs_reference_high"]
    return shown.speedup(row["speedup_vs_reference"], low, high)


_FILES = Heading(
    title="Files",
    columns=(
        Column(field="name", label="file"),
        Column(field="size_bytes", label="size", show=shown.size, number=True),
        Column(field="state", label="content"),
        Column(field="sha256", label="SHA-256", show=lambda value: (value or shown.MISSING)[:16]),
    ),
)


_SHAPES = Heading(
    title="Shapes",
    columns=(
        Column(field="shape", label="shape"),
        Column(field="latency_s", label="latency", show=shown.seconds, number=True),
        Column(field="reference_latency_s", label="ONNX Runtime", show=shown.seconds, number=True),
        Column(field="speedup_vs_reference", label="speed-up", show_record=_over, number=True),
        Column(field="max_rel_error", label="error", show=shown.error, number=True),
        Column(field="alone_bytes", label="alone", show=shown.size, number=True),
        Column(field="artifact", label="folder"),
    ),
)


def shapes_table(result: ShapesResult) -> Table:
    """A row for each shape; `alone` is what it would take without the others."""
    return _SHAPES.of(result.shapes)


def shapes_summary(result: ShapesResult) -> Table:
    """All shapes together."""
    padded = ", ".join(result.padded) or "none"
    facts: list[tuple[str, Any, str]] = [
        ("shapes", len(result.shapes), str(len(result.shapes))),
        ("padded axes", list(result.padded), padded),
        ("size", result.size_bytes, shown.size(result.size_bytes)),
        ("artifact", result.artifact, result.artifact),
    ]
    if result.measurements is not None:
        facts += [
            ("measurements", result.measurements, shown.whole(result.measurements)),
            ("elapsed", result.elapsed_s, shown.seconds(result.elapsed_s)),
        ]
    return facts_table(result.model, facts)


def artifact_tables(result: ArtifactResult) -> tuple[Table, ...]:
    """What it is, its tasks, its files."""
    mixture = mixtures.mixture_tables(result.mixture)
    return (artifact_tasks(result), _FILES.of(result.files), *mixture, _summary(result))


def artifact_tasks(result: ArtifactResult) -> Table:
    """Its tasks by their share of time, with what was chosen for each."""
    table = tasks.tasks_table(result)
    settings = Column(field="settings", label="settings", show=lambda v: shown.pairs(v or {}))
    return Table(columns=(*table.columns, settings), records=table.records, title=table.title)


def _summary(result: ArtifactResult) -> Table:
    asked = {name: value for name, value in result.source.items() if name != "model" and value}
    target = " ".join(str(result.target.get(name, "")) for name in ("kind", "mcpu")).strip()
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    latencies = result.latency_s, result.reference_latency_s
    return facts_table(
        result.model,
        (
            ("artifact", result.artifact, result.artifact),
            ("made from", result.source, f"{result.source['model']} {shown.pairs(asked)}".strip()),
            ("inputs", result.inputs, _ports(result.inputs)),
            ("outputs", result.outputs, _ports(result.outputs)),
            ("latency", latencies[0], shown.seconds(latencies[0])),
            ("ONNX Runtime", latencies[1], shown.seconds(latencies[1])),
            ("largest error", result.max_rel_error, shown.error(result.max_rel_error)),
            ("threads", result.threads, str(result.threads)),
            ("machine", result.machine, result.machine),
            ("target", result.target, target),
            (
                "versions",
                result.versions,
                versions,
            ),
        ),
    )


def _ports(ports: Sequence[ArtifactPort]) -> str:
    return ", ".join(f"{port.name} {port.dtype}{list(port.shape)}" for port in ports)

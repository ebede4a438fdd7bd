"""An artifact as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.artifacts import ArtifactPort, ArtifactResult
from tilewright.report import shown, tasks
from tilewright.report.tables import Column, Heading, Table, facts_table

_FILES = Heading(
    title="Files",
    columns=(
        Column(field="name", label="file"),
        Column(field="size_bytes", label="size", show=shown.size, number=True),
        Column(field="state", label="content"),
        Column(field="sha256", label="SHA-256", show=lambda value: (value or shown.MISSING)[:16]),
    ),
)


def artifact_tables(result: ArtifactResult) -> tuple[Table, ...]:
    """What it is, its tasks, its files."""
    return (artifact_tasks(result), _FILES.of(result.files), _summary(result))


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

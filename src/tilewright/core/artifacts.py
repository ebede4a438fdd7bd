"""What `tilewright show ARTIFACT` answers: the fields of the JSON contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.core.results import TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactPort:
    """An input or an output under the ONNX file's name."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFile:
    """A file of an artifact. `sha256` is the hash it was written with, None where there is none;
    `state` is verified, not checked, or size only."""

    name: str
    size_bytes: int
    sha256: str | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactResult:
    """A compiled network: what it is, made from what, for which machine, and how fast it was there.

    `source` is the MODEL argument with its options; times, errors and tasks are those of the run
    that made it, None where it did not tell. `rest_s` and `rest_share` are what no task took of it.
    """

    artifact: str
    model: str
    source: dict[str, Any]
    fingerprint: str
    inputs: tuple[ArtifactPort, ...]
    outputs: tuple[ArtifactPort, ...]
    target: dict[str, Any]
    threads: int
    machine: str
    device_class: str
    versions: dict[str, str]
    files: tuple[ArtifactFile, ...]
    tasks: tuple[TaskReport, ...]
    latency_s: float | None = None
    reference_latency_s: float | None = None
    max_rel_error: float | None = None
    peak_flop_per_s: float = 0.0
    peak_bytes_per_s: float = 0.0
    rest_s: float = 0.0
    rest_share: float = 0.0
    warnings: tuple[str, ...] = field(default=())

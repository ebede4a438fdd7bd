"""What `tilewright show ARTIFACT` answers, and `optimize` for several shapes: the fields of the
JSON contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.core.display import Displayed
from tilewright.core.mixtures import MixtureReport
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
    sqnr_db: float | None = None
    mixture: MixtureReport | None = None
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """One of several shapes of a network: the sizes of its axes, its time beside ONNX Runtime's,
    and how many bytes its library and weights would take if they were not shared."""

    shape: str
    sizes: dict[str, int]
    alone_bytes: int
    artifact: str
    latency_s: float | None = None
    reference_latency_s: float | None = None
    speedup_vs_reference: float | None = None
    speedup_vs_reference_low: float | None = None
    speedup_vs_reference_high: float | None = None
    max_rel_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShapesResult(Displayed):
    """The result of `optimize` for several shapes. `padded` are the axes along which arrays are
    filled up to the next larger shape; `size_bytes` is what all libraries and weights take.
    `measurements` and `elapsed_s` are those of the run that made it, None where it is only shown.
    """

    model: str
    artifact: str
    shapes: tuple[ShapeRow, ...]
    padded: tuple[str, ...]
    size_bytes: int
    measurements: int | None = None
    elapsed_s: float | None = None
    warnings: tuple[str, ...] = ()

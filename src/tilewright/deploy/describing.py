"""What an artifact is, from its manifest."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tilewright.core.artifacts import ArtifactFile, ArtifactPort, ArtifactResult
from tilewright.core.codec import convert, to_builtins
from tilewright.core.errors import DamagedArtifact
from tilewright.core.results import TaskReport
from tilewright.deploy.manifest import LIBRARY, MANIFEST, WEIGHTS, Manifest, Port
from tilewright.deploy.opening import open_artifact

_UNHASHED = "It was written before artifacts had hashes: only sizes of its files are checked."


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of the run that made it."""

    tasks: tuple[TaskReport, ...] = ()
    latency_s: float | None = None
    reference_latency_s: float | None = None
    max_rel_error: float | None = None
    peak_flop_per_s: float = 0.0
    peak_bytes_per_s: float = 0.0
    rest_s: float = 0.0
    rest_share: float = 0.0


def describe(folder: Path, *, verify: bool = True) -> ArtifactResult:
    """Read an artifact without loading it; `verify` as in `load`. Raises ModelError."""
    manifest = open_artifact(folder, verify=verify).manifest
    try:
        told = convert(manifest.result, _Told)
    except msgspec.ValidationError as error:
        raise DamagedArtifact(folder / MANIFEST, f"in `result`: {error}") from error
    return ArtifactResult(
        artifact=str(folder),
        model=manifest.model,
        source=to_builtins(manifest.source),
        fingerprint=manifest.fingerprint,
        inputs=_ports(manifest.inputs),
        outputs=_ports(manifest.outputs),
        target=manifest.machine.target,
        threads=manifest.machine.threads,
        machine=manifest.machine.model,
        device_class=manifest.machine.class_key,
        versions=manifest.versions,
        files=tuple(
            _file(folder, manifest, name, verify=verify) for name in (LIBRARY, WEIGHTS, MANIFEST)
        ),
        tasks=told.tasks,
        latency_s=told.latency_s,
        reference_latency_s=told.reference_latency_s,
        max_rel_error=told.max_rel_error,
        peak_flop_per_s=told.peak_flop_per_s,
        peak_bytes_per_s=told.peak_bytes_per_s,
        rest_s=told.rest_s,
        rest_share=told.rest_share,
        warnings=() if manifest.sha256 else (_UNHASHED,),
    )


def _ports(ports: tuple[Port, ...]) -> tuple[ArtifactPort, ...]:
    return tuple(ArtifactPort(name=p.name, shape=p.shape, dtype=p.dtype) for p in ports)


def _file(folder: Path, manifest: Manifest, name: str, *, verify: bool) -> ArtifactFile:
    known = manifest.sha256.get(name)
    state = "size only" if known is None else "verified" if verify else "not checked"
    size_bytes = (folder / name).stat().st_size
    return ArtifactFile(name=name, size_bytes=size_bytes, sha256=known, state=state)

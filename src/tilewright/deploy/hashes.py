"""Hashes: whether a file still is what was written, and whether a network still is what ships."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilewright.core import codec, records
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields
from tilewright.hardware.environment import software_versions
from tilewright.models.loaded import PreparedNetwork

_SEALS = "sha256"
_TEMPLATES = ("compiler", "kernels", "graph")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A JSON object with one more entry under `sha256`: its own hash, by `name`.

    That hash is of the canonical text of all the rest: keys in order, no spaces.
    """
    seals = {key: value for key, value in content[_SEALS].items() if key != name}
    rest = {**content, _SEALS: seals}
    own = hashlib.sha256(codec.canonical_json(rest).encode()).hexdigest()
    return {**rest, _SEALS: {**seals, name: own}}


def is_sealed(content: Mapping[str, Any], name: str) -> bool:
    """Whether a JSON object has its own hash, and the right one."""
    seals = content.get(_SEALS)
    known = cast("dict[str, Any]", seals) if isinstance(seals, dict) else {}
    return name in known and sealed(content, name)[_SEALS][name] == known[name]


def artifact_fingerprint(
    network: PreparedNetwork, plan: NetworkPlan, placement: records.Placement, weights: str
) -> str:
    """Identity of a compiled network: its plan, target, versions, templates, and the digest of its
    weights."""
    return codec.digest(
        codec.canonical_json(
            [
                network.key,
                plan_fields(plan),
                weights,
                placement.tvm_target,
                placement.resources.threads,
                software_versions(),
                sources_digest(_TEMPLATES),
            ]
        )
    )


def weights_digest(constants: Mapping[str, Array]) -> str:
    """Identity of a network's constants: names, types, shapes and values."""
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(constants):
        array = np.ascontiguousarray(constants[name])
        state.update(f"{name}{array.dtype}{array.shape}".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def sources_digest(rooms: Sequence[str]) -> str:
    """Identity of the sources of some rooms of this package."""
    package = Path(__file__).parent.parent
    state = hashlib.blake2b(digest_size=16)
    for folder in rooms:
        for path in sorted((package / folder).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()

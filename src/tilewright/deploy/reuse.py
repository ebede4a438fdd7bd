"""Whether an output folder already holds exactly the network that would be compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.fingerprints import canonical_json, digest
from tilewright.core.records import Placement
from tilewright.deploy.manifest import read_manifest, require_files
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.plan_fields import plan_fields
from tilewright.hardware.environment import software_versions
from tilewright.models.prepared import PreparedNetwork

_TEMPLATES = ("compiler", "kernels", "graph")


def artifact_fingerprint(
    network: PreparedNetwork, plan: NetworkPlan, placement: Placement, weights: str
) -> str:
    """Identity of a compiled network: its plan, target, versions, templates, and the digest of its
    weights."""
    return digest(
        canonical_json(
            [
                network.key,
                plan_fields(plan),
                weights,
                placement.tvm_target,
                placement.resources.threads,
                software_versions(),
                _templates_digest(),
            ]
        )
    )


def shipped_already(folder: Path, fingerprint: str) -> bool:
    """Whether the folder holds the artifact with this fingerprint, complete and undamaged."""
    try:
        manifest = read_manifest(folder)
        require_files(folder, manifest)
    except ModelError:
        return False
    return manifest.fingerprint == fingerprint


def weights_digest(constants: Mapping[str, Array]) -> str:
    """Identity of a network's constants: names, types, shapes and values."""
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(constants):
        array = np.ascontiguousarray(constants[name])
        state.update(f"{name}{array.dtype}{array.shape}".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def _templates_digest() -> str:
    """The sources that decide what a kernel becomes."""
    package = Path(__file__).parent.parent
    state = hashlib.blake2b(digest_size=16)
    for folder in _TEMPLATES:
        for path in sorted((package / folder).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()

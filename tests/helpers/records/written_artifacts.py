"""Artifacts as far as files go: nothing is compiled, and nothing in them runs."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from tilewright.deploy.hashes import sealed
from tilewright.deploy.manifest import LIBRARY, MANIFEST, SCHEMA_VERSION, WEIGHTS

CONTENTS = {LIBRARY: b"\x7fELF library" * 3, WEIGHTS: bytes(range(64))}
TASK = {
    "name": "conv", "anchor": "conv2d", "implementation": "conv2d_direct", "count": 2,
    "latency_s": 1e-3, "share": 1.0, "gflop_per_s": 1.0, "gbyte_per_s": 1.0, "bound": "compute",
    "settings": {"tile": 4},
}  # fmt: skip


PLAN = {
    "inputs": ["x"],
    "outputs": ["y"],
    "lanes": {"main": {"device": "cpu-1", "resources": "2t"}},
    "tensors": {
        "x": {"dtype": "float32", "shape": [1, 3], "device": "cpu-1"},
        "y": {"dtype": "float32", "shape": [1, 3], "device": "cpu-1"},
    },
    "workloads": [
        {
            "arguments": [
                ["float32", [1, 3], "data"],
                ["float32", [1, 3], "constant"],
                ["float32", [1, 3], "constant"],
            ],
            "steps": [["multiply", [0, 1], {}], ["add", [3, 2], {}]],
        }
    ],
    "kernels": [
        {
            "workload": 0,
            "implementation": "elementwise",
            "settings": {"tile": 4, "order": "rows", "unroll": True},
            "layouts": ["plain", "plain", "plain", "plain"],
        }
    ],
    "calls": [
        {
            "name": "scale", "kernel": 0, "inputs": ["x", "a", "b"], "output": "y",
            "nodes": ["multiply", "add"], "constants": {"1": "w_1", "2": "w_2"},
        }
    ],
    "constants": [
        {"name": "w_1", "shape": [1, 3], "call": "scale", "index": 1},
        {"name": "w_2", "shape": [1, 3], "call": "scale", "index": 2},
    ],
}  # fmt: skip
"""A scale and a shift, as `graph.plan_fields` writes it."""


def manifest_content(**changed: Any) -> dict[str, Any]:
    """A manifest that fits `CONTENTS`, not sealed; `changed` replaces whole fields."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": "net",
        "fingerprint": "0123",
        "source": {
            "model": "zoo:mlp",
            "batch": None,
            "shapes": {"x": [1, 3]},
            "seed": 0,
            "given": "",
            "precision": "float32",
        },
        "network_key": "net-1",
        "plan": deepcopy(PLAN),
        "sizes_bytes": {name: len(content) for name, content in CONTENTS.items()},
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()},
        "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32", "index_ranges": []}],
        "outputs": [{"name": "y", "shape": [], "dtype": "int64", "index_ranges": []}],
        "constants": ["w_1", "w_2"],
        "machine": {
            "class": "cpu-1",
            "architecture": "x86_64",
            "model": "a CPU",
            "vector_bytes": 32,
            "features": ["avx2"],
            "target": {"kind": "llvm", "mcpu": "x86-64-v3"},
            "threads": 2,
        },  # fmt: skip
        "versions": {"tilewright": "0.1.0", "apache-tvm": "0.27", "apache-tvm-ffi": "0.1"},
        "result": {"tasks": [TASK], "latency_s": 2e-3, "reference_latency_s": 4e-3},
        **changed,
    }


def write_artifact(folder: Path, **changed: Any) -> Path:
    """Library, weights and a sealed manifest in `folder`, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return write_content(folder, manifest_content(**changed))


def write_content(folder: Path, content: dict[str, Any]) -> Path:
    """A manifest with the hash of its content, whatever that is; one without hashes stays so."""
    hashed = isinstance(content.get("sha256"), dict)
    written = sealed(content, MANIFEST) if hashed else content
    (folder / MANIFEST).write_text(json.dumps(written))
    return folder

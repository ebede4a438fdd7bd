"""Which measured kernels are a network's own, and which are the same operator.

The file beside this module has the workload keys of each network of the zoo, at batch 1, so that
they are known without building it; `benchmarks/network_tasks.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from tilewright.core.forms import PLAIN
from tilewright.graph.anchors import bare_anchor
from tilewright.graph.workload import Workload
from tilewright.insight.single_operators import default_kernel
from tilewright.measure.circumstances import PROBE
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS
from tilewright.predict.base import Integers
from tilewright.predict.collected import Row
from tilewright.predict.modelling import Predictors

FILE = Path(__file__).parent / "networks.json"
PREFIX = "zoo:"


@cache
def zoo_tasks() -> Mapping[str, frozenset[str]]:
    """The workload keys of each network: `zoo:resnet50` → {`conv2d-1b92700d527fc678`, …}."""
    found: Mapping[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return {f"{PREFIX}{name}": frozenset(keys) for name, keys in found.items()}


def members_of(rows: Sequence[Row], predictors: Predictors) -> dict[str, Integers]:
    """The numbers of each network's rows: networks of the zoo, by their tasks, and those that a
    run on this device class was about, by what it measured. A row may be of several."""
    measured = _models_measured(predictors)
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        key = row.workload.key
        zoo = {name for name, keys in zoo_tasks().items() if key in keys}
        for name in zoo | measured.get(key, set()):
            found.setdefault(name, []).append(number)
    return {name: np.array(numbers, dtype=np.int64) for name, numbers in found.items()}


def _models_measured(predictors: Predictors) -> dict[str, set[str]]:
    """Networks by the workloads that runs measured for them. The probe of the machine's speed is
    no network's, nor is what a run over several models or over families measured."""
    found = predictors.store.models_of_tasks(predictors.placement.key)
    if found:
        probe, _ = default_kernel(PROBE, ModelOptions(), predictors.placement)
        found.pop(probe.key, None)
    return {key: {name for name in names if _is_network(name)} for key, names in found.items()}


def _is_network(model: str) -> bool:
    return ", " not in model and not model.startswith("op:") and model not in CONFIGURATIONS


def operators_of(rows: Sequence[Row]) -> Integers:
    """A number per row, the same for one operator whatever is fused to it: the bare anchor, the
    whole kernel where there is none."""
    keys = {row.workload.key: row.workload for row in rows}
    bare = {key: _bare(workload) for key, workload in keys.items()}
    names = [bare[row.workload.key] for row in rows]
    return np.unique(names, return_inverse=True)[1].ravel().astype(np.int64)


def _bare(workload: Workload) -> str:
    found = bare_anchor(workload, (PLAIN,) * (len(workload.arguments) + 1))
    return workload.key if found is None else found.workload.key

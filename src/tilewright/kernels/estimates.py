"""What is known of kernels before anything runs: rough times, pieces of work, least work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.grouping import grouped
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost import blocks
from tilewright.cost import demand as demands
from tilewright.cost.contention import streamed_bytes
from tilewright.cost.demand import Column, Demand
from tilewright.cost.floors import Peaks, Work, floor_s, least_work, looked_up_bytes
from tilewright.graph.workload import Workload
from tilewright.kernels.base import FLOAT16, DemandsOfMany, Implementation, OtherAlgorithm
from tilewright.kernels.registry import applicable, implementation, implementations

_FINITE_CYCLES = 0.06
"""For each number that is rounded to float16, to keep it finite: what `conv2d_amx` takes longer
than with results in bfloat16 (Xeon of the fourth generation)."""


def facts(
    spec: Implementation,
    workload: Workload,
    target: Target,
    resources: Resources,
    forms: tuple[Form, ...],
    settings: Sequence[Settings],
) -> dict[str, Column]:
    """Of each setting: `estimate_s`, a rough time; `parallel_extent`, its independent pieces of
    work; and what the implementation tells besides."""
    demand = spec.demand(workload, target, resources, forms, settings)
    demand = _stored(demand, [workload], forms)
    return _columns(demand, target, resources, len(settings))


def saved_bytes(workload: Workload, forms: tuple[Form, ...]) -> int:
    """Bytes that ports take less than in their own element types."""
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    return sum(
        kind.elements * (element_type(kind.dtype).bytes - element_type(form.dtype).bytes)
        for kind, form in zip(kinds, forms, strict=True)
        if form.dtype is not None
    )


def _stored(demand: Demand, workloads: Sequence[Workload], forms: tuple[Form, ...]) -> Demand:
    """A demand with ports in these forms: fewer bytes move, of the level that most come from, and
    results in float16 take longer to round."""
    if all(form.dtype is None for form in forms):
        return demand
    saved = np.array([saved_bytes(each, forms) for each in workloads])
    written = np.array([each.result.elements for each in workloads])
    rounding = _FINITE_CYCLES * written if forms[-1].dtype == FLOAT16 else 0.0
    demand = replace(demand, cycles=demand.cycles + rounding)
    if not saved.any() or not demand.traffic:
        return demand
    most = max(demand.traffic, key=lambda level: float(np.max(demand.traffic[level])))
    less = np.maximum(demand.traffic[most] - saved, 0.0)
    return replace(demand, traffic={**demand.traffic, most: less})


def facts_of_many(
    spec: Implementation,
    workloads: Sequence[Workload],
    target: Target,
    resources: Resources,
    forms: tuple[Form, ...],
    settings: Sequence[Settings],
) -> dict[str, Column]:
    """`facts` of each workload in the setting of its place."""
    if isinstance(spec, DemandsOfMany):
        demand = spec.demand_of_many(workloads, target, resources, forms, settings)
        demand = _stored(demand, workloads, forms)
        return _columns(demand, target, resources, len(settings))
    same = grouped([(workload.text, row) for row, workload in enumerate(workloads)])
    found: dict[str, Column] = {}
    for rows in same.values():
        mine = settings if len(same) == 1 else [settings[row] for row in rows]
        columns = facts(spec, workloads[rows[0]], target, resources, forms, mine)
        for name, values in columns.items():
            found.setdefault(name, np.full(len(workloads), np.nan))[rows] = values
    return found


def estimate_s(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> float:
    """The rough time of one kernel."""
    spec, settings = implementation(candidate.implementation), [dict(candidate.settings)]
    columns = facts(spec, workload, target, resources, candidate.forms, settings)
    return float(columns["estimate_s"][0])


def work_of(workload: Workload, implementation_name: str, target: Target) -> Work:
    """The least that the algorithm of an implementation must do; what the definition demands for
    one that is not installed."""
    spec = implementations().get(implementation_name)
    if isinstance(spec, OtherAlgorithm):
        return spec.least_work(workload, target)
    return least_work(workload, target)


def kernel_stream(workload: Workload, candidate: Candidate, target: Target, cores: int) -> float:
    """Bytes of a call that come from memory where other kernels run beside it (see
    `cost.contention`). Rows that are looked up in a table count as data: there are few of them,
    and what reads the same ones again finds them in a cache."""
    work, rows = work_of(workload, candidate.implementation, target), looked_up_bytes(workload)
    moved = replace(
        work, memory_bytes=work.memory_bytes - rows, cache_bytes=work.cache_bytes + rows
    )
    return streamed_bytes(moved, target, cores)


def task_floor_s(
    workload: Workload,
    target: Target,
    resources: Resources,
    peaks: Peaks,
    max_error: float = inf,
) -> float:
    """The time below which no algorithm that applies, with an error bound of at most `max_error`,
    can compute a workload."""
    works = {least_work(workload, target)} | {
        spec.least_work(workload, target)
        for spec in applicable(workload, target, resources)
        if isinstance(spec, OtherAlgorithm) and spec.error_bound(workload) <= max_error
    }
    return min(float(floor_s(work, peaks)) for work in works)


def _columns(demand: Demand, target: Target, resources: Resources, count: int) -> dict[str, Column]:
    told = {"parallel_extent": demand.pieces, **demand.details}
    if demand.blocks:
        told["estimate_s"] = sum(blocks.seconds(each, target) for each in demand.blocks)
        told |= blocks.totals(demand.blocks) | blocks.facts(demand.blocks[0], target)
    else:
        told["estimate_s"] = demands.seconds(demand, resources)
    return {name: np.broadcast_to(np.asarray(c, np.float64), count) for name, c in told.items()}

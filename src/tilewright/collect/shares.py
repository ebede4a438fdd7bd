"""`collect MODEL --share`: the tasks that together make up a share of a network's time.

A task's time is that of its best known settings, else of its default ones, times how often the
network computes it: measured where that kernel was, else what its family's model says, else what
the facts of the kernel say. What was chosen is written into the journal, so that a repeated command
measures the same tasks, whatever was learnt meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.collect.planned import Batch, Journal, Planned
from tilewright.core.forms import Form
from tilewright.core.predictions import CollectedShare
from tilewright.graph.tasks import Task
from tilewright.kernels.estimates import estimate_s
from tilewright.models.loaded import PreparedNetwork
from tilewright.predict.base import Floats
from tilewright.predict.collected import Estimate, family_of
from tilewright.predict.kernel_features import Kernel
from tilewright.predict.modelling import Predictors
from tilewright.store.known_candidates import best_known

_ENOUGH = 1 - 1e-9
"""Of a share: what is missing beyond it is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heaviest:
    """The `tasks` that are measured of a network, in its order, and what is `told` of them."""

    tasks: Sequence[Task]
    told: CollectedShare


def heaviest(
    model: str, network: PreparedNetwork, share: float, predictors: Predictors, journal: Journal
) -> Heaviest:
    """As few tasks as make up a `share`, above 0 and at most 1, of the time of a network, which was
    named `model`; those that the journal names where it knows the network."""
    tasks, placement = list(network.tasks.values()), predictors.placement
    best = best_known(network.tasks, predictors.store, placement)
    each = [_estimate((task.workload, best[task.key]), predictors) for task in tasks]
    counted = zip(tasks, each, strict=True)
    times_s = np.array([task.count * found.latency_s for task, found in counted])
    name = f"{share} of {model}"
    entries = journal.of(name)
    if not entries:
        entries = [_planned(name, [tasks[number] for number in _leading(times_s, share)])]
        journal.add(entries[0])
    wanted = {(batch.workload_key, batch.forms) for batch in entries[0].batches}
    taken = np.array([_kernels_of(task) in wanted for task in tasks], dtype=bool)
    return Heaviest(
        tasks=[task for task, is_taken in zip(tasks, taken, strict=True) if is_taken],
        told=CollectedShare(
            model=model,
            device_class=str(placement.key),
            tasks=int(taken.sum()),
            tasks_of_network=len(tasks),
            share=float(times_s[taken].sum() / times_s.sum()) if len(tasks) else 1.0,
            measured=sum(found.source == "exact" for found in each),
        ),
    )


def _leading(times_s: Floats, share: float) -> list[int]:
    """The numbers of the longest times that add up to a share of all."""
    order = np.argsort(-times_s, kind="stable")
    sums = np.cumsum(times_s[order])
    count = 1 + int(np.searchsorted(sums, share * _ENOUGH * float(times_s.sum())))
    return order[:count].tolist()


def _kernels_of(task: Task) -> tuple[str, tuple[Form, ...]]:
    return task.workload.key, task.forms


def _planned(name: str, tasks: Sequence[Task]) -> Planned:
    none = {"candidates": (), "predicted_s": ()}
    batches = (
        Batch(workload_key=task.workload.key, name=task.name, forms=task.forms, **none)
        for task in tasks
    )
    return Planned(family=name, numbers={}, batches=tuple(batches))


def _estimate(kernel: Kernel, predictors: Predictors) -> Estimate:
    """The time of a kernel by the best that is known; nothing is said of its interval."""
    family = family_of(kernel[0])
    known = predictors.measured(family).estimate(*kernel)
    if known is not None:
        return known
    model, placement = predictors.model(family), predictors.placement
    if model is None:
        time_s = estimate_s(*kernel, placement.target, placement.resources)
    else:
        time_s = float(model.predict(predictors.features([kernel], model)).predicted[0])
    source = "facts" if model is None else "model"
    return Estimate(latency_s=time_s, low_s=time_s, high_s=time_s, source=source)

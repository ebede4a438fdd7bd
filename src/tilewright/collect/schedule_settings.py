"""In which schedule settings a configuration is measured: default, best known, random."""

from __future__ import annotations

import numpy as np

from tilewright.core.codec import digest
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Placement
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import TaskSpace, default_candidate, spaces
from tilewright.measure.circumstances import is_usual
from tilewright.predict.forecasting import BestGuesses
from tilewright.predict.modelling import Predictors
from tilewright.store.known_candidates import own, ranked

_USUAL, _ANYWHERE = 0.75, 0.25
"""Part of the random settings in the layouts a network would have, and in any layouts at all."""


def best_known(
    predictors: Predictors, workload: Workload, forms: tuple[Form, ...]
) -> Candidate | None:
    """The settings of a task that are expected to be fastest at a placement as networks use it: the
    choice of its family's model, else what was fastest among measured ones, here before anywhere
    else; None where nothing is known."""
    guesses = BestGuesses(predictors=predictors, fitting=predictors.shipped is not None)
    for guess in guesses(workload, forms):
        return guess
    rows = [
        row
        for row in predictors.store.stored_measurements(workload_key=workload.key)
        if row.candidate.forms == forms and is_usual(row.device_class)
    ]
    own_class, classes = predictors.placement.key, {row.placement_key for row in rows}
    for key in sorted(classes, key=lambda key: (key != own_class, str(key))):
        for best in ranked(own(row for row in rows if row.placement_key == key)):
            return best.candidate
    return None


def candidates_of(
    task: Task, placement: Placement, predictors: Predictors, count: int, seed: tuple[int, str]
) -> list[Candidate]:
    """The default candidate in the layouts a network would have, the best known one, then `count`
    random ones of any implementation: most in these layouts, others in the operator's own or in
    any. `seed` is a number, and the text that the task comes from."""
    usual = _usual_forms(task, placement)
    found = {default_candidate(task.workload, usual, placement)[0]: None}
    known = best_known(predictors, task.workload, usual)
    if known is not None:
        found.setdefault(known)
    random = np.random.default_rng([seed[0], int(digest(seed[1]), 16) % 2**32])
    for _ in range(count):
        forms = usual if random.random() < _USUAL else task.forms
        offered = spaces(task.workload, forms, placement)
        space = offered[int(random.integers(len(offered)))]
        if random.random() < _ANYWHERE:
            space = _elsewhere(space, random)
        number = int(space.numbers[int(random.integers(len(space.numbers)))])
        found.setdefault(space.part.candidate(number))
    return list(found)


def _usual_forms(task: Task, placement: Placement) -> tuple[Form, ...]:
    """What the default implementation would read and write inside a network; a single operator's
    own layouts are those of a network's inputs and outputs."""
    chosen = default_candidate(task.workload, task.forms, placement)[0]
    return implementation(chosen.implementation).port_forms(
        task.workload, placement.target, placement.resources
    )[0]


def _elsewhere(space: TaskSpace, random: np.random.Generator) -> TaskSpace:
    """The same implementation in any layouts that it offers."""
    ports = space.spec.port_forms(space.workload, space.placement.target, space.placement.resources)
    other = TaskSpace(
        workload=space.workload,
        forms=ports[int(random.integers(len(ports)))],
        placement=space.placement,
        spec=space.spec,
    )
    return other if len(other.numbers) else space

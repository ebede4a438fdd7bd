"""The spaces of a task's implementations, and the settings they would pick unmeasured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Implementation
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import allowed_libraries, applicable, precise_enough, takes
from tilewright.kernels.search_space import Floats, Numbers, Part, SearchSpace, knob_space

MAX_ERRORS = {
    "float32": 1e-4,
    "bfloat16": 2e-2,
    "float16": 5e-3,
    "auto": 2e-2,
    "int8": 5e-2,
    "int8-weights": 3e-2,
}
"""Allowed error of a network's outputs where nothing else is asked for, relative to the largest
value of each, by precision; kernels whose error bound is above it compete only where more is
allowed."""
MAX_ERROR = MAX_ERRORS["float32"]
MAX_CODE_ERROR = 3e-2
"""The same of networks that round to codes of eight bits: where sums are rounded in another order,
a code becomes its neighbour."""

_HOPELESS = 6.0
_BOUNDARY_S = 15e-6
"""What a call of a library takes beside its work."""
_REMEMBERED = 1024
_SAMPLED = 4096


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """All candidates of one implementation for a workload in fixed port layouts. One competes
    `when_measured` only that is a library: nobody believes its estimates."""

    workload: Workload
    forms: tuple[Form, ...]
    placement: Placement
    spec: Implementation
    when_measured: bool = False

    @cached_property
    def part(self) -> Part:
        """The implementation's knobs and facts as a tuner sees them."""
        workload, placement, forms, spec = self.workload, self.placement, self.forms, self.spec
        return Part(
            name=spec.name,
            forms=forms,
            knobs=knob_space(spec, workload, placement.target, placement.resources, forms),
            estimate_s=lambda settings: facts(
                spec, workload, placement.target, placement.resources, forms, settings
            )["estimate_s"],
        )

    def exact_enough(self, rivals: Sequence[TaskSpace], max_error: float) -> bool:
        """Whether the stated error bound is within `max_error`, or the least there is.

        Where results are stored in halves, none is more exact than their rounding. It is not asked
        of results that are codes: the bound is then that of rounding to the neighbouring code.
        """
        if "float" not in self.workload.result.dtype:
            return True
        least = min(space.spec.error_bound(self.workload) for space in rivals)
        return self.spec.error_bound(self.workload) <= max(max_error, least)

    @cached_property
    def numbers(self) -> Numbers:
        """The valid numbers of the space, a sample of them where they are too many to list."""
        return SearchSpace([self.part]).all_or_sample(np.random.default_rng(0), _SAMPLED)

    @cached_property
    def estimates_s(self) -> Floats:
        """The rough time of each of `numbers`."""
        assert self.part.estimate_s is not None
        return self.part.estimate_s(self.part.knobs.columns(self.numbers))

    @cached_property
    def best_guess(self) -> tuple[Candidate, float] | None:
        """The candidate with the least estimate, and that time; None where nothing is valid."""
        if not len(self.numbers):
            return None
        index = int(np.argmin(self.estimates_s))
        return self.part.candidate(int(self.numbers[index])), float(self.estimates_s[index])


@lru_cache(maxsize=_REMEMBERED)
def _all_spaces(
    workload: Workload, forms: tuple[Form, ...], placement: Placement
) -> tuple[TaskSpace, ...]:
    """The spaces of all implementations that apply and have valid settings, at least one."""
    found = [
        TaskSpace(
            workload=workload,
            forms=forms,
            placement=placement,
            spec=spec,
        )
        for spec in applicable(workload, placement.target, placement.resources)
        if precise_enough(spec, workload, forms, placement) and takes(spec, workload, forms)
    ]
    found = [space for space in found if space.best_guess is not None]
    if not found:
        raise InternalError(f"no implementation applies to {workload.key}")
    libraries = allowed_libraries(workload, forms, placement)
    return (*found, *(replace(found[0], spec=spec, when_measured=True) for spec in libraries))


def _task_spaces(
    workload: Workload, forms: tuple[Form, ...], placement: Placement, max_error: float | None
) -> tuple[TaskSpace, ...]:
    """Those of all spaces that are exact enough, by default for the precision, at least one."""
    found = _all_spaces(workload, forms, placement)
    most = MAX_ERRORS[placement.precision] if max_error is None else max_error
    return tuple(space for space in found if space.exact_enough(found, most))


def forget_spaces() -> None:
    """Forget what was listed: for tests that offer other implementations."""
    _all_spaces.cache_clear()


def spaces(
    workload: Workload,
    forms: tuple[Form, ...],
    placement: Placement,
    max_error: float | None = None,
) -> list[TaskSpace]:
    """The space of every implementation that applies, at least one.

    Left out are implementations whose error bound (relative to sum |w||x|) is above `max_error`,
    unless none is more exact, those that their own estimate puts far behind the best, and libraries
    where a call of one takes as long as the task.
    """
    found = _task_spaces(workload, forms, placement, max_error)
    least_s = {s: float(s.estimates_s.min()) for s in found if not s.when_measured}
    best_s = min(least_s.values())
    return [
        space
        for space in found
        if (best_s > _BOUNDARY_S if space.when_measured else least_s[space] <= _HOPELESS * best_s)
    ]


def search_space(
    workload: Workload,
    forms: tuple[Form, ...],
    placement: Placement,
    max_error: float | None = None,
) -> SearchSpace:
    """What a tuner searches for a task: the united spaces of its implementations."""
    return SearchSpace([space.part for space in spaces(workload, forms, placement, max_error)])


def default_candidate(
    workload: Workload,
    forms: tuple[Form, ...],
    placement: Placement,
    max_error: float | None = None,
) -> tuple[Candidate, float]:
    """The candidate with the least estimated time over all implementations, and that time."""
    return ranked_defaults(workload, forms, placement, max_error)[0]


def ranked_defaults(
    workload: Workload,
    forms: tuple[Form, ...],
    placement: Placement,
    max_error: float | None = None,
) -> list[tuple[Candidate, float]]:
    """The best guess of each implementation with its estimated time, fastest first; without
    libraries, whose estimates nobody believes."""
    found = _task_spaces(workload, forms, placement, max_error)
    guesses = [space.best_guess for space in found if not space.when_measured]
    return sorted((g for g in guesses if g is not None), key=lambda guess: guess[1])


def library_candidates(
    workload: Workload,
    forms: tuple[Form, ...],
    placement: Placement,
    max_error: float | None = None,
) -> list[Candidate]:
    """What each library that is allowed offers for a task: to be measured, not to be guessed at."""
    found = spaces(workload, forms, placement, max_error) if placement.libraries else ()
    guesses = [space.best_guess for space in found if space.when_measured]
    return [guess[0] for guess in guesses if guess is not None]


def too_inexact(
    workload: Workload, forms: tuple[Form, ...], placement: Placement, max_error: float | None
) -> frozenset[str]:
    """The names of the implementations that `max_error` forbids for a task."""
    every = _task_spaces(workload, forms, placement, inf)
    left = _task_spaces(workload, forms, placement, max_error)
    return frozenset(s.spec.name for s in every) - {s.spec.name for s in left}

"""Kernels that take bfloat16 against numpy, on this machine where it multiplies it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import Form, stored_in
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate, spaces
from tilewright.measure.checking import (
    least_of,
    numpy_reference,
    relative_error,
    rounding_of,
    sample_arguments,
    stored_as,
)

HALF = "bfloat16"
HERE = replace(local_placement(), precision=HALF)
needs_halves = pytest.mark.skipif(
    not half_lanes(HERE.target), reason="no products of bfloat16 here"
)


def check(task: Workload, on: Placement, name: str, forms: tuple[Form, ...], choice: int = -1):
    """Assert that a kernel's result is numpy's within its bound; the candidate."""
    spec = implementation(name)
    if choice < 0:
        guess = [c for c, _ in [default_candidate(task, forms, on)] if c.implementation == name]
        choice = 0 if not guess else choice
    if choice < 0:
        candidate = guess[0]
    else:
        space = knob_space(spec, task, on.target, on.resources, forms)
        numbers = [*space]
        found = space.settings(numbers[choice % len(numbers)])
        candidate = Candidate(
            implementation=name, settings=tuple(sorted(found.items())), forms=forms
        )
    arrays = [
        stored_as(array, form)
        for array, form in zip(sample_arguments(task, 0), forms, strict=False)
    ]
    result = build_kernel(task, candidate, on.target, on.resources).run(arrays)
    error = relative_error(result, *numpy_reference(task, arrays), least_of(task, forms[-1]))
    assert result.dtype == np.float32
    assert error <= spec.error_bound(task) + rounding_of(forms[-1]), str(candidate)
    return candidate


def best_of(name: str, task: Workload, on: Placement, forms: tuple[Form, ...]) -> Candidate:
    """The candidate of an implementation with the least estimate."""
    guesses = (space.best_guess for space in spaces(task, forms, on) if space.spec.name == name)
    return next(guess[0] for guess in guesses if guess is not None)


def halved(form: Form, yes: bool) -> Form:
    return stored_in(form, HALF) if yes else form

"""Building one kernel with repacked constants and comparing it with numpy, for the tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.kernels.one_kernel import PLACEMENT, all_settings, called, random_arrays
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Placement, Settings
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.graph.evaluate import magnitude, run_workload
from tilewright.graph.network import Array, TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.base import Implementation
from tilewright.kernels.estimates import facts as facts_of


def constants_workload(
    shapes: Sequence[tuple[int, ...]], constants: Sequence[int], steps: Sequence[Step]
) -> Workload:
    """A workload over float32 arguments; those at `constants` are constants."""
    arguments = tuple(
        Argument(type=TensorType(shape), role="constant" if index in constants else "data")
        for index, shape in enumerate(shapes)
    )
    return Workload(arguments=arguments, steps=tuple(steps))


def choose(
    task: Workload, spec: Implementation, forms: tuple[Form, ...], choice: int | None
) -> Settings:
    """The setting with the best estimate, or the one a number picks."""
    found = all_settings(task, spec.name, forms)
    if choice is not None:
        return found[choice % len(found)]
    facts = facts_of(spec, task, PLACEMENT.target, PLACEMENT.resources, forms, found)
    return found[int(np.argmin(facts["estimate_s"]))]


def check_kernel(
    task: Workload, spec: Implementation, forms: tuple[Form, ...] = (), choice: int | None = None
) -> None:
    """Assert that a kernel gives numpy's result within the bound that its spec promises."""
    forms = forms or (PLAIN,) * (len(task.arguments) + 1)
    settings = choose(task, spec, forms, choice)
    error = kernel_error(task, spec, forms, settings)
    assert error <= spec.error_bound(task), f"{error:.1e} with {settings} on {forms}"


def kernel_error(
    task: Workload,
    spec: Implementation,
    forms: tuple[Form, ...],
    settings: Settings,
    placement: Placement = PLACEMENT,
    arrays: Sequence[Array] = (),
) -> float:
    """Largest error relative to the magnitude of the sums; infinite where a NaN stays. Arguments
    are random unless given."""
    candidate = Candidate(implementation=spec.name, settings=tuple(settings.items()), forms=forms)
    arrays = arrays or random_arrays(task)
    constants = {i: arrays[i] for i, a in enumerate(task.arguments) if a.role == "constant"}
    packed = spec.pack(task, candidate, constants)
    physical = [
        packed[i] if i in spec.packed_shapes(task, candidate) else to_physical(array, form)
        for i, (array, form) in enumerate(zip(arrays, forms, strict=False))
    ]
    unwritten = np.nan if "float" in task.result.dtype else 1
    result = called(task, candidate, placement, physical, unwritten)
    found = to_logical(result, forms[-1], task.result.shape)
    difference = np.abs(found.astype(np.float64) - run_workload(task, arrays))
    relative = difference / magnitude(task, arrays)
    return float("inf") if np.isnan(relative).any() else float(relative.max())

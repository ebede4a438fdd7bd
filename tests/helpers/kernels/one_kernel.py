"""Building one kernel and running it on arrays, for the tests of the lowerings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from helpers.fakes.placements import altered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.kernel_runs import BuiltKernel
from tilewright.core.forms import PLAIN, Form
from tilewright.core.records import Candidate, Placement, Settings
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.graph.network import Array, TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.testing.implementations import made_up_placement

PLACEMENT = altered(
    made_up_placement(32, 16, threads=2),
    class_key="test",
    instance="test",
    architecture="x86_64",
    tvm=json.dumps({"kind": "llvm"}),
)


def step(operator: str, *inputs: int, **named) -> Step:
    """A step with its attributes in canonical order."""
    return Step(operator=operator, inputs=inputs, attributes=attributes(**named))


def workload(shapes: Sequence[tuple[int, ...] | TensorType], *steps: Step) -> Workload:
    """A workload over float32 arguments, or those of the types given."""
    kinds = [s if isinstance(s, TensorType) else TensorType(s) for s in shapes]
    return Workload(arguments=tuple(Argument(type=kind) for kind in kinds), steps=steps)


def random_arrays(task: Workload, seed: int = 0) -> list[Array]:
    """Normal values; small integers where the type is whole."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for argument in task.arguments:
        shape, dtype = argument.type.shape, np.dtype(argument.type.dtype)
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -4
            arrays.append(rng.integers(low, 5, shape).astype(dtype))
        elif dtype.kind == "b":
            arrays.append(rng.random(shape) < 0.5)
        else:
            arrays.append(rng.standard_normal(shape).astype(dtype))
    return arrays


def all_settings(task: Workload, name: str, forms: tuple[Form, ...]) -> list[Settings]:
    """Every valid combination of knob values, the last knob's changing first."""
    space = knob_space(implementation(name), task, PLACEMENT.target, PLACEMENT.resources, forms)
    numbers = np.arange(space.range_length).reshape(space.lengths[::-1]).T.reshape(-1)
    return [dict(found) for found in space.columns(numbers[space.accepted(numbers)])]


def run_kernel(
    task: Workload,
    name: str,
    arrays: Sequence[Array],
    forms: tuple[Form, ...] = (),
    settings: Settings | None = None,
    placement: Placement = PLACEMENT,
) -> Array:
    """The kernel's result, row-major; the best-looking settings unless told."""
    forms = forms or (PLAIN,) * (len(task.arguments) + 1)
    spec = implementation(name)
    if settings is None:
        choices = all_settings(task, name, forms)
        settings = choices[
            int(
                np.argmin(
                    facts_of(spec, task, placement.target, placement.resources, forms, choices)[
                        "estimate_s"
                    ]
                )
            )
        ]
    candidate = Candidate(implementation=name, settings=tuple(settings.items()), forms=forms)
    physical = [
        to_physical(array, form).reshape(form.physical_shape(array.shape))
        for array, form in zip(arrays, forms, strict=False)
    ]
    result = called(task, candidate, placement, physical, 77)
    return to_logical(result, forms[-1], task.result.shape)


def called(
    task: Workload,
    candidate: Candidate,
    placement: Placement,
    physical: Sequence[Array],
    unwritten: float,
) -> Array:
    """What a kernel writes over a result full of `unwritten`, in its form, on arrays in theirs."""
    import tvm

    kernel = _built(task, candidate, placement)
    given = [(array.shape, str(array.dtype)) for array in physical]
    assert given == [*kernel.argument_types[:-1]]
    shape, dtype = kernel.argument_types[-1]
    result = tvm.runtime.tensor(np.full(shape, unwritten, dtype))
    kernel.call(*map(tvm.runtime.tensor, physical), result)
    return result.numpy()


@lru_cache(maxsize=16)
def _built(task: Workload, candidate: Candidate, placement: Placement) -> BuiltKernel:
    """A kernel, compiled once for arrays of several kinds."""
    return build_kernel(task, candidate, placement.target, placement.resources)

"""Kernels of every element type keep the bound of their precision, and broken ones do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest

from helpers.fakes.measuring import failed
from helpers.kernels.every_anchor import CASES
from helpers.kernels.one_kernel import run_kernel, step, workload
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, FailureKind, KernelCheck
from tilewright.graph.network import Array, TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.measure.base import Measurer
from tilewright.measure.checking import check_kernel

DTYPES = ["bfloat16", "float16", "float64"]
CONV = dict(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)
CHAINS = {
    "convolution and its epilogue": (
        [(1, 32, 8, 8), (32, 32, 3, 3), (32, 1, 1), (1, 32, 8, 8)],
        [step("conv2d", 0, 1, **CONV), step("add", 4, 2), step("add", 5, 3), step("silu", 6)],
    ),
    "deep": (
        [(4, 64), (64,)],
        [
            step("multiply", 0, 1),
            step("exp", 2),
            step("leaky_relu", 3, alpha=0.3),
            step("subtract", 4, 0),
            step("tanh", 5),
            step("hard_swish", 6),
        ],
    ),
    "a border": (
        [(2, 3, 4, 4), (2, 1, 1, 6)],
        [
            step("pad", 0, before=(0, 0, 0, 0), after=(0, 0, 0, 2), value=0.5, mode="constant"),
            step("add", 2, 1),
        ],
    ),
    "joined": (
        [(4, 3), (4, 5), (4, 8)],
        [step("concat", 0, 1, axis=1), step("multiply", 3, 2), step("tanh", 4)],
    ),
    "a choice": (
        [(4, 64), (4, 64)],
        [
            step("multiply", 0, 1),
            step("greater", 0, 1),
            step("where", 3, 2, 0),
            step("negative", 4),
        ],
    ),
    "whole numbers": ([(4, 64), (64,)], [step("multiply", 0, 1), step("round", 2)]),
}


def task(name: str, dtype: str) -> Workload:
    shapes, steps = CHAINS[name] if name in CHAINS else (CASES[name][0], [CASES[name][1]])
    return workload([TensorType(shape, dtype) for shape in shapes], *steps)


@dataclass
class Builds:
    """A measurer that runs the kernel here, breaks what goes in or comes out, and counts."""

    arrive: Callable[[Sequence[Array]], Sequence[Array]] = field(default=lambda arrays: arrays)
    leave: Callable[[Array], Array] = field(default=lambda array: array)

    def evaluate(self, work: Workload, _: Candidate, arrays: Sequence[Array]) -> Array:
        return self.leave(run_kernel(work, "generic", self.arrive(arrays)))

    def failure(
        self, work: Workload, candidate: Candidate, kind: FailureKind, message: str
    ) -> Failure:
        return failed(work, candidate, kind, message=message)


def check(work: Workload, builds: Builds) -> KernelCheck:
    plain = (PLAIN,) * (len(work.arguments) + 1)
    candidate = Candidate(implementation="generic", settings=(), forms=plain)
    return check_kernel(cast(Measurer, builds), work, candidate, seed=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*CASES, *CHAINS])
def test_within_the_bound(name: str, dtype: str) -> None:
    found = check(task(name, dtype), Builds())
    assert found.failure is None and found.error is not None
    assert found.bound < 0.03


def scaled(factor: float) -> Callable[[Array], Array]:
    return lambda array: (array.astype(np.float64) * factor).astype(array.dtype)


BROKEN = {
    "a factor": Builds(leave=scaled(1.1)),
    "the other sign": Builds(leave=scaled(-1.0)),
    "another row": Builds(leave=lambda array: np.roll(array, 1, axis=-1)),
    "zeros": Builds(leave=np.zeros_like),
    "a transposed operand": Builds(
        arrive=lambda arrays: [arrays[0], np.ascontiguousarray(np.swapaxes(arrays[1], -1, -2))]
    ),
    "a term left out": Builds(
        arrive=lambda arrays: [np.where(np.arange(32) == 5, 0, a).astype(a.dtype) if i == 0 else a
                               for i, a in enumerate(arrays)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_product_is_caught(broken: str, dtype: str) -> None:
    work = workload([TensorType((8, 32), dtype), TensorType((32, 32), dtype)], step("dense", 0, 1))
    found = check(work, BROKEN[broken])
    assert found.failure is not None and found.failure.kind == "wrong result"


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bound_grows_slowly(dtype: str) -> None:
    """Of a sum of many thousand terms, which bfloat16 could not even count."""
    long = workload(
        [TensorType((1, 25088), dtype), TensorType((25088, 8), dtype)], step("dense", 0, 1)
    )
    assert implementation("generic").error_bound(long) < {"bfloat16": 0.009, "float16": 0.0011}.get(
        dtype, 1e-12
    )

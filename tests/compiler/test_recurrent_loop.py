"""Recurrent layers against numpy: every cell and operand, in every setting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import PLACEMENT, random_arrays, run_kernel, step, workload
from helpers.kernels.packed_kernel import check_kernel, choose, constants_workload
from tilewright.compiler.build import WorkspaceReader, compiled, kernel_module
from tilewright.core.element_types import element_type
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.operators.recurrent import GATES
from tilewright.graph.workload import Step, Workload
from tilewright.kernels.planned_memory import workspaces_of
from tilewright.kernels.recurrent import SPEC
from tilewright.testing.implementations import ImplementationConformance, candidate_of, plain

USUAL = {"lstm": "sigmoid tanh tanh", "gru": "sigmoid tanh", "rnn": "tanh"}


def layer(
    cell: str, sizes: tuple[int, int, int], operands: str = "", **named: Any
) -> tuple[list[tuple[int, ...]], Step]:
    """Shapes of the arguments, and the step, of so many steps, sequences and columns."""
    steps, batch, hidden = sizes
    shapes = {
        "state": (batch, hidden),
        "memory": (batch, hidden),
        "peepholes": (3 * hidden,),
        "bias": (hidden,),
        "lengths": (batch,),
    }
    columns = GATES[cell] * hidden
    listed = [(steps, batch, columns), (hidden, columns), *(shapes[n] for n in operands.split())]
    usual = dict(activations=USUAL[cell.split("_")[0]], clip=0.0, reverse=False, finals=0)
    attributes = usual | named | {"cell": cell, "operands": operands}
    return listed, step("recurrent", *range(len(listed)), **attributes)


def task(cell: str, sizes: tuple[int, int, int], operands: str = "", **named: Any) -> Workload:
    shapes, one = layer(cell, sizes, operands, **named)
    return constants_workload(shapes, [1], [one])


@settings(max_examples=14, deadline=None, derandomize=True)
@given(
    cell=st.sampled_from(sorted(GATES)),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 7), st.sampled_from([1, 5, 8, 19, 24, 40])),
    reverse=st.booleans(),
    finals=st.integers(0, 2),
    clip=st.sampled_from([0.0, 0.6]),
    given_states=st.booleans(),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_random_layers(
    cell: str,
    sizes: tuple[int, int, int],
    reverse: bool,
    finals: int,
    clip: float,
    given_states: bool,
    choice: int | None,
) -> None:
    lstm = cell.startswith("lstm")
    operands = ["state", *["memory", "peepholes"] * lstm] if given_states else []
    operands += ["bias"] * (cell == "gru_reset_after")
    named = dict(reverse=reverse, finals=finals if lstm else min(finals, 1), clip=clip)
    check_kernel(task(cell, sizes, " ".join(operands), **named), SPEC, choice=choice)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", GATES)
def test_sequences_end_before_the_last_step(cell: str, reverse: bool) -> None:
    states = len(USUAL[cell.split("_")[0]].split()) // 3 + 1
    shapes, one = layer(cell, (4, 5, 12), "state lengths", reverse=reverse, finals=states)
    kinds = [TensorType(shape) for shape in shapes[:-1]] + [TensorType(shapes[-1], "int32")]
    short = workload(kinds, one)
    arrays = [*random_arrays(short)[:-1], np.array([0, 1, 4, 2, 3], np.int32)]
    found, expected = run_kernel(short, SPEC.name, arrays), run_workload(short, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not expected[2, 1].any() and (expected[4, 0] == arrays[2][0]).all()


@pytest.mark.parametrize(
    "activation",
    ["relu", "softsign", "affine:0.5:0.1", "scaled_tanh:1.5:0.3", "hard_sigmoid:0.2:0.5",
     "leaky_relu:0.1", "thresholded_relu:0.3", "elu:0.7", "softplus"],
)  # fmt: skip
def test_activations(activation: str) -> None:
    check_kernel(task("rnn", (3, 2, 24), activations=activation), SPEC)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), ("float16", 4e-3), ("bfloat16", 3e-2)]
)
def test_other_types(dtype: str, tolerance: float) -> None:
    shapes, one = layer("gru", (3, 2, 24), "state", finals=1)
    wide = workload([TensorType(shape, dtype) for shape in shapes], one)
    arrays = random_arrays(wide)
    found = run_kernel(wide, SPEC.name, arrays)
    assert found.dtype == element_type(dtype).numpy
    wanted, found = (a.astype(np.float64) for a in (run_workload(wide, arrays), found))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def test_gates_are_computed_before_and_states_used_behind() -> None:
    shapes, one = layer("lstm", (3, 2, 16))
    steps = [step("multiply", 0, 2), step("recurrent", 3, 1, **one.named), step("relu", 4)]
    check_kernel(constants_workload([*shapes, (1,)], [1, 2], steps), SPEC)


class TestInWorkersOfSeveralThreads(ImplementationConformance):
    spec = SPEC
    workloads = (task("gru", (9, 4, 40), "state", finals=1),)


def test_workspaces_are_what_was_said() -> None:
    import tvm

    for cell in ("lstm", "gru"):
        large = task(cell, (2, 8, 520))
        chosen = candidate_of(SPEC, choose(large, SPEC, plain(large), None), plain(large))
        where, reader = (PLACEMENT.target, PLACEMENT.resources), WorkspaceReader()
        with tvm.transform.PassContext(instruments=[reader]):
            compiled(kernel_module(large, chosen, *where), *where)
        assert [*reader.found.values()] == [workspaces_of(large, chosen, *where)]

"""Integer transposed convolutions against numpy: every result is exact."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.test_conv2d_int8 import CLIENTS, HERE, PLACEMENTS, fitting, needs_dots
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Placement
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.conv2d_transposed_int8 import SPEC
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import sample_arguments
from tilewright.measure.targeting import placement_of


def transposed(
    data: tuple[int, ...], dtype: str, filters: int, kernel: tuple[int, int], epilogue: bool,
    groups: int = 1, **named: tuple[int, ...],
) -> Workload:  # fmt: skip
    """Bare sums, or with a bias and requantized to bytes."""
    usual = {"strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1), "output_padding": (0, 0)}
    given_ = attributes(**{**usual, **named}, groups=groups)
    kinds = [TensorType((data[1], filters // groups, *kernel), "int8")]
    steps = [Step(operator="conv2d_transpose", inputs=(0, 1), attributes=given_)]
    if epilogue:
        kinds += [TensorType((filters, 1, 1), "int32"), TensorType((filters, 1, 1))]
        steps += [
            Step(operator="add", inputs=(4, 2)),
            Step(operator="cast", inputs=(5,), attributes=attributes(dtype="float32")),
            Step(operator="multiply", inputs=(6, 3)),
            Step(operator="round", inputs=(7,)),
            Step(operator="clip", inputs=(8,), attributes=attributes(minimum=0.0, maximum=255.0)),
            Step(operator="cast", inputs=(9,), attributes=attributes(dtype="uint8")),
        ]
    arguments = (
        Argument(type=TensorType(data, dtype)),
        *(Argument(type=kind, role="constant") for kind in kinds),
    )
    return Workload(arguments=arguments, steps=tuple(steps))


def check(task: Workload, on: Placement, data: Form, result: Form, choice: int) -> Candidate:
    """Assert that setting number `choice`, or the default one, gives numpy's result."""
    forms = (data, *(PLAIN,) * (len(task.arguments) - 1), result)
    candidate, _ = default_candidate(task, forms, on)
    assert candidate.implementation == SPEC.name
    if choice:
        space = knob_space(SPEC, task, on.target, on.resources, forms)
        found = space.settings([*space][choice % len([*space])])
        candidate = Candidate(
            implementation=SPEC.name, settings=tuple(sorted(found.items())), forms=forms
        )
    arrays = sample_arguments(task, 0)
    kernel = build_kernel(task, candidate, on.target, on.resources)
    np.testing.assert_array_equal(
        kernel.run(arrays), run_workload(task, arrays), err_msg=str(candidate)
    )
    return candidate


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from(["int8", "uint8"]),
    channels=st.sampled_from(
        [(4, 16, 1), (16, 32, 2), (9, 12, 3), (7, 3, 1), (5, 21, 1), (6, 10, 1), (3, 1, 1),
         (6, 6, 6), (4, 6, 2), (32, 48, 1)]
    ),
    extents=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    extra=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    blocks=st.tuples(st.sampled_from([0, 3, 4, 16]), st.sampled_from([0, 3, 8, 16])),
    epilogue=st.booleans(),
    choice=st.integers(0, 10_000),
    placement=st.sampled_from(PLACEMENTS),
)  # fmt: skip
def test_random_geometries(
    dtype, channels, extents, kernel, strides, padding, dilation, extra, blocks, epilogue, choice,
    placement,
):  # fmt: skip
    inputs, outputs, groups = channels
    task = transposed(
        (2, inputs, *extents), dtype, outputs, kernel, epilogue, groups,
        strides=strides, padding=padding, dilation=dilation, output_padding=extra,
    )  # fmt: skip
    try:
        empty = not all(task.result.shape)
    except TilewrightError:
        empty = True
    assume(not empty)
    result = blocked(blocks[1]) if blocks[1] and outputs // groups % blocks[1] == 0 else PLAIN
    check(task, placement, fitting(blocks[0], inputs), result, choice)


@needs_dots
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("filters", [32, 21, 3])
def test_upsampling_by_two_is_the_instruction(filters: int, dtype: str) -> None:
    task = transposed((1, 32, 14, 14), dtype, filters, (4, 4), True, padding=(1,) * 4)
    candidate = check(task, HERE, blocked(16), fitting(16, filters), 0)
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert text.count("vpdpbusd") >= 14
    assert not re.search(r"\bvp(mulld|maddwd)", text), "nothing is multiplied otherwise"


@pytest.mark.parametrize("cpu", CLIENTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_processors_of_256_bits_compute_the_same_codes(cpu: str, dtype: str) -> None:
    placement = placement_of(f"llvm -mcpu={cpu}", None, 1)
    task = transposed((1, 20, 5, 7), dtype, 24, (3, 3), True, padding=(1,) * 4)
    candidate = check(task, placement, blocked(4), blocked(8), 0)
    text = rendered(task, candidate, placement.target, placement.resources, "asm")
    assert "%zmm" not in text and "vpmaddubsw" not in text, "it saturates"
    assert ("vpdpbusd" in text) == (cpu == "alderlake")


@needs_dots
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_largest_sums_do_not_saturate(placement: Placement) -> None:
    task = transposed((1, 64, 2, 2), "uint8", 16, (2, 2), False)
    forms = (blocked(16), PLAIN, blocked(16))
    candidate, _ = default_candidate(task, forms, placement)
    arrays = [np.full(a.type.shape, v, a.type.dtype)
              for a, v in zip(task.arguments, (255, -128), strict=True)]  # fmt: skip
    found = build_kernel(task, candidate, placement.target, placement.resources).run(arrays)
    assert (found == -255 * 128 * 64).all()


def test_the_general_fallback_computes_the_same_codes() -> None:
    task = transposed((1, 6, 5, 4), "uint8", 9, (3, 4), True, 3, padding=(1, 0, 0, 1))
    forms, generic = (PLAIN,) * 5, implementation("generic")
    space = knob_space(generic, task, HERE.target, HERE.resources, forms)
    found = tuple(sorted(space.settings(next(iter(space))).items()))
    candidate = Candidate(implementation=generic.name, settings=found, forms=forms)
    arrays = sample_arguments(task, 0)
    kernel = build_kernel(task, candidate, HERE.target, HERE.resources)
    np.testing.assert_array_equal(kernel.run(arrays), run_workload(task, arrays))

"""Transposed convolutions of bfloat16 against numpy."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.test_conv2d_transposed import transposed
from helpers.kernels.in_halves import HALF, HERE, check, halved, needs_halves
from tilewright.compiler.build import rendered
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, blocked
from tilewright.hardware.device import parse_target
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate

NAME = "conv2d_transposed_bfloat16"


@needs_halves
@settings(max_examples=14, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from(
        [
            (4, 16, 1),
            (16, 32, 2),
            (12, 24, 3),
            (10, 8, 1),
            (32, 16, 1),
            (9, 12, 3),
            (7, 3, 1),
            (5, 21, 1),
            (6, 10, 1),
            (3, 1, 1),
        ]
    ),
    extents=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    extra=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    blocks=st.tuples(st.sampled_from([0, 2, 3, 4, 16]), st.sampled_from([0, 8, 16])),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_random_geometries(
    channels, extents, kernel, strides, padding, dilation, extra, blocks, halves, choice
):
    inputs, outputs, groups = channels
    task = transposed(
        (1, inputs, *extents), outputs, kernel, strides=strides, padding=padding,
        dilation=dilation, output_padding=extra, groups=groups,
    )  # fmt: skip
    try:
        empty = not all(task.result.shape)
    except TilewrightError:
        empty = True
    assume(not empty)
    data, result = (
        blocked(block) if block and count % (groups * block) == 0 else PLAIN
        for block, count in zip(blocks, (inputs, outputs), strict=True)
    )
    forms = (halved(data, halves[0]), PLAIN, PLAIN, halved(result, halves[1]))
    assume([*knob_space(implementation(NAME), task, HERE.target, HERE.resources, forms)])
    check(task, HERE, NAME, forms, choice)


def test_upsampling_by_two_is_the_instruction_and_the_default() -> None:
    task = transposed(
        (1, 32, 14, 14), 32, (4, 4), strides=(2, 2), padding=(1, 1, 1, 1),
        dilation=(1, 1), output_padding=(0, 0), groups=1,
    )  # fmt: skip
    half, zen = (
        halved(blocked(16), True),
        replace(parse_target("llvm -mcpu=znver4", 2), precision=HALF),
    )
    candidate, _ = default_candidate(task, (half, PLAIN, PLAIN, half), zen)
    assert candidate.implementation == NAME
    text = rendered(task, candidate, zen.target, zen.resources, "asm")
    assert text.count("vdpbf16ps") >= 14

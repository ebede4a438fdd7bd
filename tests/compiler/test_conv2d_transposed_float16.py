"""Transposed convolutions of float16 against numpy, and on processors that need not be here.

Where this machine does not multiply halves, LLVM does so by conversions, with the same roundings.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.test_conv2d_transposed import transposed
from helpers.fakes.placements import altered
from helpers.kernels.in_halves import best_of, check
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.graph.evaluate import run_workload
from tilewright.hardware.device import local_placement, parse_target
from tilewright.hardware.features import units_of
from tilewright.kernels.conv2d_transposed_float16 import SPEC
from tilewright.kernels.halves import converts_float16
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import stored_as

HALF = "float16"
OWN = local_placement(2)
UNITS = units_of((*OWN.target.features, "avx512fp16"), OWN.target.vector_bytes)
HERE = replace(altered(OWN, units=UNITS), precision=HALF)
needs_conversion = pytest.mark.skipif(
    not converts_float16(OWN.target), reason="no conversion of float16 here"
)
PLAINEST = {"padding": (0,) * 4, "dilation": (1, 1), "output_padding": (0, 0), "groups": 1}


def half(form: Form, yes: bool = True) -> Form:
    return stored_in(form, HALF) if yes else form


@needs_conversion
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from(
        [(16, 32, 2), (9, 24, 3), (7, 3, 1), (5, 21, 1), (3, 1, 1), (64, 64, 1), (37, 40, 1)]
    ),
    extents=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 1)] * 4),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    blocks=st.tuples(st.sampled_from([0, 16]), st.sampled_from([0, 8])),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_random_geometries(
    channels, extents, kernel, strides, padding, dilation, blocks, halves, choice
):
    inputs, outputs, groups = channels
    task = transposed(
        (1, inputs, *extents), outputs, kernel, strides=strides, padding=padding,
        dilation=dilation, output_padding=(0, 0), groups=groups,
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
    forms = (half(data, halves[0]), PLAIN, PLAIN, half(result, halves[1]))
    assume([*knob_space(SPEC, task, HERE.target, HERE.resources, forms)])
    check(task, HERE, SPEC.name, forms, choice)


@needs_conversion
@pytest.mark.parametrize(("inputs", "groups"), [(64, 1), (3, 1), (32, 2)])
def test_errors_of_additions_are_as_large_as_is_told_ahead(inputs: int, groups: int) -> None:
    """Within a decibel and a half of what a kernel shows whose factors are halves."""
    named = {**PLAINEST, "strides": (2, 2), "groups": groups}
    task = transposed((1, inputs, 9, 9), 32, (4, 4), **named)
    task = replace(task, arguments=task.arguments[:2], steps=task.steps[:1])
    candidate = best_of(SPEC.name, task, HERE, (half(PLAIN), PLAIN, PLAIN))
    rng = np.random.default_rng(0)
    data, weights = (
        stored_as(np.maximum(rng.standard_normal(a.type.shape, np.float32), -0.5), half(PLAIN))
        for a in task.arguments
    )
    ours = build_kernel(task, candidate, HERE.target, HERE.resources).run([data, weights])
    exact = run_workload(task, [data.astype(np.float64), weights.astype(np.float64)])
    told = np.broadcast_to(SPEC.addition_deviations(task, [data, weights]), exact.shape)
    ratio = np.sum(np.square(ours - exact)) / np.sum(np.square(told))
    assert abs(10 * np.log10(ratio)) < 1.5


def test_a_processor_with_the_instructions_adds_up_halves() -> None:
    task = transposed((1, 32, 14, 14), 64, (4, 4), **{**PLAINEST, "strides": (2, 2)})
    xeon = replace(parse_target("llvm -mcpu=sapphirerapids", 2), precision=HALF)
    forms = (half(blocked(32)), PLAIN, PLAIN, half(blocked(32)))
    candidate, _ = default_candidate(task, forms, xeon)
    assert candidate.implementation == SPEC.name
    text = rendered(task, candidate, xeon.target, xeon.resources, "asm")
    assert text.count("vfmadd231ph") >= 14 and "vfmadd231ps" not in text


def test_a_processor_that_only_converts_stores_halves_and_multiplies_singles() -> None:
    """The data is widened once, as it is copied."""
    task = transposed((1, 32, 14, 14), 32, (4, 4), **{**PLAINEST, "strides": (2, 2)})
    avx2 = replace(parse_target("llvm -mcpu=haswell", 2), precision=HALF)
    forms = (half(blocked(8)), PLAIN, PLAIN, half(blocked(8)))
    candidate, _ = default_candidate(task, forms, avx2)
    assert candidate.implementation == "conv2d_transposed"
    text = rendered(task, candidate, avx2.target, avx2.resources, "asm")
    assert "vcvtph2ps" in text and "vcvtps2ph" in text and "vfmadd" in text

"""Kernels that multiply float16, and those that read and write it, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.test_bfloat16_kernels import WIDENING, conv, dense, fitting
from helpers.kernels.in_halves import best_of, check
from helpers.kernels.one_kernel import PLACEMENT, workload
from helpers.kernels.one_kernel import step as one
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.core.records import Placement
from tilewright.graph.evaluate import run_workload
from tilewright.hardware.device import local_placement, parse_target
from tilewright.kernels.float16_sums import runs
from tilewright.kernels.half_noise import AddsInHalves
from tilewright.kernels.halves import has_half_arithmetic
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import stored_as

HALF = "float16"
HERE = replace(local_placement(2), precision=HALF)
needs_arithmetic = pytest.mark.skipif(
    not has_half_arithmetic(HERE.target), reason="no arithmetic on float16 here"
)
AVX2 = replace(parse_target("llvm -mcpu=haswell", 2), precision=HALF)
CONVOLUTION, DENSE = "conv2d_float16", "dense_float16"


def half(form: Form, yes: bool = True) -> Form:
    return stored_in(form, HALF) if yes else form


@needs_arithmetic
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from([3, 10, 16, 37, 64]),
    filters=st.sampled_from([8, 16, 48, 64]),
    extents=st.tuples(st.integers(5, 13), st.integers(5, 13)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    blocks=st.tuples(st.sampled_from([0, 4, 16, 32, 64]), st.sampled_from([0, 8, 16, 32])),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_convolutions(channels, filters, extents, kernel, strides, padding, blocks, halves, choice):
    task = conv((1, channels, *extents), filters, kernel, strides=strides, padding=padding)
    result = half(fitting(blocks[1], filters), halves[1])
    forms = (half(fitting(blocks[0], channels), halves[0]), PLAIN, PLAIN, result, result)
    if len([*knob_space(implementation(CONVOLUTION), task, HERE.target, HERE.resources, forms)]):
        check(task, HERE, CONVOLUTION, forms, choice)


@needs_arithmetic
def test_groups_and_dilation() -> None:
    task = conv((2, 32, 9, 9), 32, (3, 3), padding=(2,) * 4, dilation=(2, 2), groups=2)
    result = half(blocked(16))
    check(task, HERE, CONVOLUTION, (half(blocked(16)), PLAIN, PLAIN, result, result), 0)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    rows=st.sampled_from([(1,), (5,), (2, 7), (17,)]),
    depth=st.sampled_from([6, 33, 64, 130]),
    columns=st.sampled_from([3, 40, 70, 96]),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
    on=st.sampled_from([HERE, HERE, AVX2]),
)
def test_dense_layers(rows, depth, columns, halves, choice, on):
    task = dense(rows, depth, columns)
    forms = (half(PLAIN, halves[0]), PLAIN, PLAIN, half(PLAIN, halves[1]))
    if len([*knob_space(implementation(DENSE), task, on.target, on.resources, forms)]):
        check(task, on, DENSE, forms, choice)


@needs_arithmetic
@pytest.mark.parametrize("name", [CONVOLUTION, DENSE])
def test_runs_are_added_up_in_halves_and_singles_from_run_to_run(name: str) -> None:
    if name == DENSE:
        task, forms = dense((32,), 64, 64), (half(PLAIN), PLAIN, PLAIN, PLAIN)
    else:
        block = half(blocked(32))
        task, forms = conv((1, 32, 14, 14), 64, (1, 1)), (block, PLAIN, PLAIN, block, block)
    candidate = check(task, HERE, name, forms)
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert text.count("vfmadd231ph") >= 14 and "vfmadd231ps" not in text
    assert text.count("vaddps") >= 14


@needs_arithmetic
@pytest.mark.parametrize("case", ["3x3", "1x1 on blocks", "few channels", "groups", "dense"])
def test_errors_of_additions_are_as_large_as_is_told_ahead(case: str) -> None:
    """Within a decibel of what a kernel shows whose factors are halves."""
    block, plain, result = half(blocked(32)), half(PLAIN), PLAIN
    task, forms = {
        "3x3": (conv((1, 32, 14, 14), 64, (3, 3), padding=(1,) * 4), (block,)),
        "1x1 on blocks": (conv((1, 128, 14, 14), 64, (1, 1)), (block,)),
        "few channels": (conv((1, 3, 20, 20), 64, (7, 7), strides=(2, 2)), (plain,)),
        "groups": (conv((1, 64, 9, 9), 64, (3, 3), groups=2, dilation=(2, 2)), (block,)),
        "dense": (dense((32,), 200, 96), (plain,)),
    }[case]
    task = replace(task, arguments=task.arguments[:2], steps=task.steps[:1])
    name = DENSE if case == "dense" else CONVOLUTION
    spec, ports = implementation(name), (*forms, PLAIN, result)
    candidate = best_of(name, task, HERE, ports)
    rng = np.random.default_rng(0)
    data, weights = (
        stored_as(np.maximum(rng.standard_normal(a.type.shape, np.float32), -0.5), plain)
        for a in task.arguments
    )
    ours = build_kernel(task, candidate, HERE.target, HERE.resources).run([data, weights])
    exact = run_workload(task, [data.astype(np.float64), weights.astype(np.float64)])
    assert isinstance(spec, AddsInHalves)
    told = np.broadcast_to(spec.addition_deviations(task, [data, weights]), exact.shape)
    ratio = np.sum(np.square(ours - exact)) / np.sum(np.square(told))
    assert abs(10 * np.log10(ratio)) < 1.0


@pytest.mark.parametrize("on", [HERE, AVX2], ids=["here", "AVX2"])
def test_a_row_streams_halves_and_multiplies_singles(on: Placement) -> None:
    task, forms = dense((1,), 256, 64), (half(PLAIN), PLAIN, PLAIN, half(PLAIN))
    candidate = check(task, on, DENSE, forms)
    assert candidate.setting("run") == 0
    kernel = build_kernel(task, candidate, on.target, on.resources)
    assert kernel.argument_types[1][1] == HALF
    if on is AVX2:
        text = rendered(task, candidate, on.target, on.resources, "asm")
        assert "vcvtph2ps" in text and "vfmadd" in text and "zmm" not in text
        assert runs(on.target, 32) == (0,), "there is no arithmetic on halves"


@pytest.mark.parametrize("case", ["injective", "rows", "pool2d_rows", "conv2d_depthwise"])
@pytest.mark.parametrize("on", [PLACEMENT, AVX2], ids=["spelled out", "F16C"])
def test_kernels_in_single_precision_read_and_write_halves(case: str, on: Placement) -> None:
    task, ports = WIDENING[case], implementation(case).half_ports(WIDENING[case])  # type: ignore[attr-defined]
    kinds = [*((a.type, a.role) for a in task.arguments), (task.result, "data")]
    forms = [
        half(
            fitting(16, kind.shape[1]) if role == "data" and len(kind.shape) == 4 else PLAIN,
            i in ports,
        )
        for i, (kind, role) in enumerate(kinds)
    ]
    check(task, on, case, tuple(forms), 0)


def test_a_change_of_layout_moves_halves() -> None:
    task = workload([(1, 32, 4, 6)], one("identity", 0))
    candidate, _ = default_candidate(task, (half(blocked(16)), half(PLAIN)), HERE)
    assert "float32" not in rendered(task, candidate, HERE.target, HERE.resources, "tir")


@pytest.mark.parametrize("on", [PLACEMENT, AVX2, HERE], ids=["spelled out", "F16C", "here"])
def test_rounding_is_to_the_nearest_and_finite_where_numbers_are(on: Placement) -> None:
    values = np.random.default_rng(0).integers(0, 2**32, 1031, np.uint32).view(np.float32)
    values[:500] *= np.float32(2.0**-100)
    values[:9] = [np.inf, -np.inf, np.nan, -0.0, 3.4e38, -3.4e38, 65504, 65520, -65519]
    values[9:12] = [1 + 2**-11, 1 + 3 * 2**-11, 6e-8]
    task, forms = workload([values.shape], one("identity", 0)), (PLAIN, half(PLAIN))
    candidate, _ = default_candidate(task, forms, replace(on, precision=HALF))
    found = build_kernel(task, candidate, on.target, on.resources).run([values])
    np.testing.assert_array_equal(found, stored_as(values, forms[1]))
    assert found[4:9].tolist() == [65504, -65504, 65504, 65504, -65504]


@pytest.mark.parametrize("on", [PLACEMENT, AVX2, HERE], ids=["spelled out", "F16C", "here"])
@pytest.mark.parametrize("layout", [PLAIN, blocked(3)], ids=str)
def test_an_image_that_is_rounded_is_right(layout: Form, on: Placement) -> None:
    """Some of its numbers are so small that float16 has few bits left for them."""
    task, forms = workload([(1, 3, 224, 224)], one("identity", 0)), (PLAIN, half(layout))
    candidate, _ = default_candidate(task, forms, replace(on, precision=HALF))
    check(task, on, candidate.implementation, forms, 0)

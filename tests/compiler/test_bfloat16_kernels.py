"""Kernels that multiply bfloat16, and those that read and write it, against numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.in_halves import HALF, HERE, check, halved, needs_halves
from helpers.kernels.one_kernel import PLACEMENT, step, workload
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.core.records import Placement, Protocol
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import (
    stored_as,
)


def conv(data: tuple[int, ...], filters: int, kernel: tuple[int, int], **named) -> Workload:
    """A convolution with a bias, another tensor of the result's shape added, and relu."""
    given_ = {"strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1, **named}
    weight = TensorType((filters, data[1] // given_["groups"], *kernel))
    anchor = Step(operator="conv2d", inputs=(0, 1), attributes=attributes(**given_))
    arguments = [Argument(type=TensorType(data)), Argument(type=weight, role="constant")]
    made = Workload(arguments=tuple(arguments), steps=(anchor,)).result
    arguments += [
        Argument(type=TensorType((filters, 1, 1)), role="constant"),
        Argument(type=made),
    ]
    steps = (
        anchor,
        Step(operator="add", inputs=(4, 2)),
        Step(operator="add", inputs=(5, 3)),
        Step(operator="relu", inputs=(6,)),
    )
    return Workload(arguments=tuple(arguments), steps=steps)


def dense(rows: tuple[int, ...], depth: int, columns: int) -> Workload:
    arguments = (
        Argument(type=TensorType((*rows, depth))),
        Argument(type=TensorType((depth, columns)), role="constant"),
        Argument(type=TensorType((columns,)), role="constant"),
    )
    steps = (Step(operator="dense", inputs=(0, 1)), Step(operator="add", inputs=(3, 2)))
    return Workload(arguments=arguments, steps=steps)


def fitting(block: int, channels: int) -> Form:
    return blocked(block) if block and channels % block == 0 else PLAIN


@needs_halves
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from([3, 4, 8, 10, 16, 32]),
    filters=st.sampled_from([8, 16, 20, 48]),
    extents=st.tuples(st.integers(5, 13), st.integers(5, 13)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.one_of(st.just((0,) * 4), st.tuples(*[st.integers(0, 2)] * 4)),
    dilation=st.sampled_from([(1, 1), (1, 1), (1, 2)]),
    blocks=st.tuples(st.sampled_from([0, 4, 16, 32]), st.sampled_from([0, 8, 16])),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_convolutions(
    channels, filters, extents, kernel, strides, padding, dilation, blocks, halves, choice
):
    task = conv(
        (1, channels, *extents), filters, kernel,
        strides=strides, padding=padding, dilation=dilation,
    )  # fmt: skip
    result = halved(fitting(blocks[1], filters), halves[1])
    forms = (halved(fitting(blocks[0], channels), halves[0]), PLAIN, PLAIN, result, result)
    spec = implementation("conv2d_bfloat16")
    if len([*knob_space(spec, task, HERE.target, HERE.resources, forms)]):
        check(task, HERE, spec.name, forms, choice)


@needs_halves
def test_groups_of_channels() -> None:
    task = conv((2, 16, 7, 9), 32, (3, 3), padding=(1,) * 4, groups=2)
    for data in (blocked(8), stored_in(blocked(8), HALF)):
        result = stored_in(blocked(16), HALF)
        check(task, HERE, "conv2d_bfloat16", (data, PLAIN, PLAIN, result, result), 0)


@needs_halves
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    rows=st.sampled_from([(1,), (5,), (2, 7), (17,)]),
    depth=st.sampled_from([6, 16, 33, 64]),
    columns=st.sampled_from([3, 16, 40, 70]),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
)
def test_dense_layers(rows, depth, columns, halves, choice):
    task = dense(rows, depth, columns)
    forms = (halved(PLAIN, halves[0]), PLAIN, PLAIN, halved(PLAIN, halves[1]))
    check(task, HERE, "dense_bfloat16", forms, choice)


@needs_halves
@pytest.mark.parametrize("name", ["conv2d_bfloat16", "dense_bfloat16"])
def test_products_are_the_instruction(name: str) -> None:
    if name == "dense_bfloat16":
        task, forms = dense((32,), 64, 64), (stored_in(PLAIN, HALF), PLAIN, PLAIN, PLAIN)
    else:
        block = stored_in(blocked(16), HALF)
        task, forms = conv((1, 32, 14, 14), 32, (1, 1)), (block, PLAIN, PLAIN, block, block)
    candidate = check(task, HERE, name, forms)
    text = rendered(task, candidate, HERE.target, HERE.resources, "asm")
    assert text.count("vdpbf16ps") >= 14


def elementwise(*shape: int) -> Workload:
    return workload([shape, shape], step("add", 0, 1), step("gelu", 2))


WIDENING = {
    "injective": elementwise(1, 32, 5, 7),
    "injective, concatenated": workload(
        [(1, 16, 5, 7), (1, 32, 5, 7)], step("concat", 0, 1, axis=1)
    ),
    "injective, moved": workload([(2, 32, 4, 6)], step("transpose", 0, permutation=(0, 2, 3, 1))),
    "injective, copied": workload([(1, 32, 4, 6)], step("identity", 0)),
    "rows": workload([(6, 32)], step("softmax", 0, axis=1)),
    "rows, reduced": workload([(1, 32, 5, 5)], step("reduce_mean", 0, axes=(2, 3), keepdims=True)),
    "pool2d_rows": workload(
        [(1, 32, 9, 9)],
        step("max_pool2d", 0, kernel=(3, 3), strides=(2, 2), padding=(1,) * 4, dilation=(1, 1)),
    ),
    "conv2d_depthwise": conv((1, 32, 9, 9), 32, (3, 3), padding=(1,) * 4, groups=32),
    "conv2d_winograd": conv((1, 32, 12, 12), 32, (3, 3), padding=(1,) * 4),
    "conv2d_direct": conv((1, 32, 9, 9), 32, (3, 3), padding=(1,) * 4),
    "dense_packed": dense((7,), 32, 48),
    "generic": elementwise(3, 5),
}


@pytest.mark.parametrize("case", list(WIDENING))
@pytest.mark.parametrize("block", [0, 16])
def test_kernels_in_single_precision_read_and_write_halves(case: str, block: int) -> None:
    task, name = WIDENING[case], case.split(",")[0]
    spec = implementation(name)
    ports = spec.half_ports(task)  # type: ignore[attr-defined]
    kinds = [*((a.type, a.role) for a in task.arguments), (task.result, "data")]
    forms = []
    for index, (kind, role) in enumerate(kinds):
        images = role == "data" and len(kind.shape) == 4 and "moved" not in case
        form = fitting(block, kind.shape[1]) if images else PLAIN
        forms.append(halved(form, index in ports))
    assert len(ports) >= 1
    check(task, PLACEMENT, name, tuple(forms), 0)


def test_a_change_of_layout_keeps_the_bits_of_halves() -> None:
    task = workload([(1, 32, 4, 6)], step("identity", 0))
    forms = (stored_in(blocked(16), HALF), stored_in(PLAIN, HALF))
    candidate, _ = default_candidate(task, forms, replace(PLACEMENT, precision=HALF))
    text = rendered(task, candidate, PLACEMENT.target, PLACEMENT.resources, "tir")
    assert "float32" not in text


@pytest.mark.parametrize(
    "on", [PLACEMENT, pytest.param(HERE, marks=needs_halves)], ids=["integers", "instruction"]
)
@pytest.mark.parametrize("size", [7, 1024])
def test_rounding_is_to_the_nearest_and_finite_where_numbers_are(on: Placement, size: int) -> None:
    values = np.random.default_rng(size).integers(0, 2**32, size, np.uint32).view(np.float32)
    values[~(np.abs(values) > 1.2e-38)] = 1.0 + 2**-8  # ties to even
    values[:7] = [1.0 + 3 * 2**-8, np.inf, -np.inf, np.nan, -0.0, 3.4e38, -3.4e38]
    task = workload([values.shape], step("identity", 0))
    forms = (PLAIN, stored_in(PLAIN, HALF))
    candidate, _ = default_candidate(task, forms, replace(on, precision=HALF))
    found = build_kernel(task, candidate, on.target, on.resources).run([values])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, stored_as(values, forms[1]))
    assert found[0] == 1.015625 and np.isfinite(found[5:7]).all()
    text = rendered(task, candidate, on.target, on.resources, "asm")
    assert ("vcvtneps2bf16" in text) == (on is HERE)


@needs_halves
def test_what_is_too_small_for_a_normal_number_becomes_less() -> None:
    values = np.array([1e-40, -9e-39, 1.1e-38], np.float32)
    task = workload([values.shape], step("identity", 0))
    candidate, _ = default_candidate(task, (PLAIN, stored_in(PLAIN, HALF)), HERE)
    found = build_kernel(task, candidate, HERE.target, HERE.resources).run([values])
    assert (np.abs(found) <= 1.2e-38).all()


def test_halves_are_timed_on_normal_numbers() -> None:
    task = elementwise(1, 64)
    form = stored_in(PLAIN, HALF)
    candidate, _ = default_candidate(task, (form,) * 3, replace(PLACEMENT, precision=HALF))
    kernel = build_kernel(task, candidate, PLACEMENT.target, PLACEMENT.resources)
    sets, activations = kernel._operands(Protocol(), 0)  # pyright: ignore[reportPrivateUsage]
    first = np.from_dlpack(sets[0][0])
    assert first.dtype == np.uint16 and len(activations) == 2
    singles = (first.astype(np.uint32) << 16).view(np.float32)
    assert 0.7 < singles.std() < 1.3

"""Winograd convolutions against numpy, with friendly and with adversarial magnitudes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.convolutions import conv, forms_for
from helpers.kernels.one_kernel import PLACEMENT
from helpers.kernels.packed_kernel import check_kernel, choose, kernel_error
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import magnitude, run_workload
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_winograd import (
    ALONG_ONE_AXIS,
    SPECS,
    TILES_OF_2,
    TILES_OF_4,
    WinogradConvolution,
)
from tilewright.kernels.convolution import convolution
from tilewright.testing.implementations import ImplementationConformance

LANES = PLACEMENT.target.lanes("float32")
CASES = [(spec, kernel) for spec in SPECS for kernel in spec.outputs]
Pair = tuple[int, int]


@settings(max_examples=24, deadline=None, derandomize=True)
@given(
    case=st.sampled_from(CASES),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(4, 19), st.integers(4, 19)),
    chunks=st.tuples(st.integers(2, 3), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    plain=st.tuples(st.booleans(), st.booleans()),
    epilogue=st.sampled_from(["", "b", "bru"]),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_any_shape(case, batch, extents, chunks, padding, plain, epilogue, choice) -> None:
    spec, kernel = case
    down, across = (size - 1 if size > 1 else 1 for size in kernel)
    padding = tuple(min(p, most) for p, most in zip(padding, (down, across) * 2, strict=True))
    least = [m + r - 1 for m, r in zip(spec.outputs[kernel], kernel, strict=True)]
    height = max(extents[0], least[0] - padding[0] - padding[2])
    width = max(extents[1], least[1] - padding[1] - padding[3])
    shape = (batch, LANES * chunks[0], height, width)
    task = conv(shape, LANES * chunks[1], kernel=kernel, epilogue=epilogue, padding=padding)
    assert spec.applies(task, PLACEMENT.target, PLACEMENT.resources)
    data, result = (PLAIN if p else blocked(LANES) for p in plain)
    check_kernel(task, spec, forms_for(task, data, result), choice)


@pytest.mark.parametrize("epilogue", ["", "bru"])
@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_whole_registers_of_channels_that_nothing_divides(
    spec: WinogradConvolution, kernel: Pair, epilogue: str
) -> None:
    padding = (kernel[0] // 2, kernel[1] // 2) * 2
    task = conv((1, 2 * LANES, 12, 11), 4 * LANES + 5, kernel, epilogue, padding=padding)
    forms = forms_for(task, blocked(LANES), PLAIN)
    assert choose(task, spec, forms, None)["lanes"] == LANES
    check_kernel(task, spec, forms)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_partial_tiles_on_every_side(spec: WinogradConvolution, kernel: Pair, plain: bool) -> None:
    down, across = kernel[0] // 2, kernel[1] // 2
    padding = (down, across, 0, across + 1)
    task = conv((1, 3 * LANES, 11, 13), 2 * LANES, kernel, "bru", padding=padding)
    form = PLAIN if plain else blocked(LANES)
    check_kernel(task, spec, forms_for(task, form, form))


@pytest.mark.parametrize("order", ["channels", "tiles"])
@pytest.mark.parametrize("batch", [1, 2])
def test_strips_give_the_results_of_the_whole_plane(order: str, batch: int) -> None:
    spec = TILES_OF_4
    task = conv((batch, 2 * LANES, 15, 18), 2 * LANES, epilogue="bru", padding=(1, 1, 1, 1))
    forms = forms_for(task, blocked(LANES), blocked(LANES))
    strips = next(
        k.values
        for k in spec.knobs(task, PLACEMENT.target, PLACEMENT.resources, forms)
        if k.name == "strip"
    )
    assert strips == (0, 1, 2)
    for strip in strips:
        chosen = {"lanes": LANES, "tile_rows": 5, "tile_out": 1, "order": order, "strip": strip}
        assert spec.valid(task, PLACEMENT.target, PLACEMENT.resources, forms, chosen)
        assert kernel_error(task, spec, forms, chosen) <= spec.error_bound(task)


def built_and_run(
    task: Workload, spec: WinogradConvolution, variants: list[list[Array]]
) -> list[tuple[Array, Array]]:
    """For each row of arrays the absolute error of one kernel, and sum |w||x| of each output."""
    forms = forms_for(task, blocked(LANES), blocked(LANES))
    chosen = choose(task, spec, forms, None)
    candidate = Candidate(implementation=spec.name, settings=tuple(chosen.items()), forms=forms)
    kernel = build_kernel(task, candidate, PLACEMENT.target, PLACEMENT.resources)
    found: list[tuple[Array, Array]] = []
    for arrays in variants:
        exact = run_workload(task, [array.astype(np.float64) for array in arrays])
        found.append((np.abs(kernel.run(arrays) - exact), magnitude(task, arrays)))
    return found


def normal(task: Workload, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(a.type.shape, dtype=np.float32) for a in task.arguments]


@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_the_bound_holds_and_is_not_loose(spec: WinogradConvolution, kernel: Pair) -> None:
    task = conv((1, 2 * LANES, 16, 16), 2 * LANES, kernel)
    bound = spec.error_bound(task)
    signs = np.where(np.indices((16, 16)).sum(axis=0) % 2, -1, 1).astype(np.float32)
    rng = np.random.default_rng(5)
    scales = 10.0 ** rng.choice([-1.5, 0.0, 1.5], (2 * LANES, 1, 1))
    data, weights = normal(task, 3)
    variants = {
        "normal": [data, weights],
        "cut off": [np.maximum(data, 0), weights],
        "positive": [np.abs(data), np.abs(weights)],
        "alternating": [np.abs(data) * signs, weights],
        "channels": [(data * scales).astype(np.float32), weights],
    }
    found = built_and_run(task, spec, list(variants.values()))
    ratios = [float((error / sums).max()) for error, sums in found]
    worst = dict(zip(variants, ratios, strict=True))
    assert max(worst.values()) <= bound, worst
    assert bound <= 30 * max(worst.values()), worst


@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_a_huge_value_spoils_only_its_tiles(spec: WinogradConvolution, kernel: Pair) -> None:
    padding = (kernel[0] // 2, kernel[1] // 2) * 2
    task = conv((1, 2 * LANES, 16, 16), LANES, kernel, padding=padding)
    data, weights = normal(task, 3)
    data[0, 5, 9, 9] = 1e6
    ((error, sums),) = built_and_run(task, spec, [[data, weights]])
    bound = spec.error_bound(task)
    touched = np.ones((1, 1, 16, 16), dtype=bool)
    form = spec.form(convolution(task))
    for axis, way, border in ((2, form.vertical, padding[0]), (3, form.horizontal, padding[1])):
        first = np.arange(16) // way.outputs * way.outputs - border
        reads = (first <= 9) & (first + way.positions > 9)
        touched &= np.expand_dims(reads, [a for a in range(4) if a != axis])
    assert 0 < touched.sum() < touched.size
    far = np.broadcast_to(~touched, sums.shape)
    assert (error / sums)[far].max() <= bound
    largest = 1e6 * np.abs(weights[:, 5]).sum(axis=(1, 2)).reshape(1, LANES, 1, 1)
    near = error / (largest + sums)
    assert near.max() <= bound


def test_factors_of_one_and_zero_cost_nothing() -> None:
    spec = TILES_OF_2
    task = conv((1, 2 * LANES, 8, 8), LANES, (3, 3), padding=(1, 1, 1, 1))
    forms = forms_for(task, blocked(LANES), blocked(LANES))
    settings_ = choose(task, spec, forms, None)
    candidate = Candidate(implementation=spec.name, settings=tuple(settings_.items()), forms=forms)
    target = json.dumps({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
    text = rendered(
        task, candidate, replace(PLACEMENT.target, tvm=target), PLACEMENT.resources, "asm"
    )
    assert re.search(r"\tvsub[ps]s", text) and re.search(r"\tvfmadd\d+ps", text)
    assert not re.search(r"\tvmul[ps]s", text)


class TestTileOfTwo(ImplementationConformance):
    """The shipped suite on this machine, whose vectors may be wider than those above."""

    spec = TILES_OF_2
    workloads = (
        conv((1, 32, 7, 9), 32, (3, 3), padding=(1, 1, 1, 1)),
        conv((1, 32, 9, 7), 32, (5, 5), padding=(2, 2, 2, 2)),
    )


class TestOneAxis(ImplementationConformance):
    """Rows and columns."""

    spec = ALONG_ONE_AXIS
    workloads = (
        conv((1, 32, 7, 9), 32, (1, 7), padding=(0, 3, 0, 3)),
        conv((1, 32, 9, 7), 32, (3, 1), padding=(1, 0, 1, 0)),
    )


class TestTileOfFour(ImplementationConformance):
    """The usual form."""

    spec = TILES_OF_4
    workloads = (conv((1, 32, 7, 9), 32, (3, 3), "bru", padding=(1, 1, 1, 1)),)

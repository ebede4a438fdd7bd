"""Winograd convolutions with products of bfloat16 and float16, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.convolutions import conv, forms_for
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.core.records import Candidate
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels import conv2d_winograd_bfloat16, conv2d_winograd_float16
from tilewright.kernels.conv2d_bfloat16 import SPEC as DIRECT
from tilewright.kernels.conv2d_winograd_halves import HalfWinograd
from tilewright.kernels.convolution import convolution
from tilewright.kernels.float16_sums import LONGEST_RUN
from tilewright.kernels.halves import half_lanes, has_half_arithmetic
from tilewright.kernels.search_space import knob_space
from tilewright.kernels.winograd_rounding import rounding_errors
from tilewright.kernels.winograd_transforms import double
from tilewright.measure.checking import (
    numpy_reference,
    relative_error,
    rounding_of,
    sample_arguments,
    stored_as,
)

HALF = "bfloat16"
HERE = local_placement(2)
SPECS = conv2d_winograd_bfloat16.SPECS
FINE = conv2d_winograd_float16.SPECS
TILES_OF_4, TILES_OF_2, ALONG_ONE_AXIS = SPECS
FINE_4, FINE_2, FINE_1D = FINE
Pair = tuple[int, int]
COARSE_CASES = [(spec, kernel) for spec in SPECS for kernel in spec.outputs]
FINE_CASES = [(spec, kernel) for spec in FINE for kernel in spec.outputs]
needs_bfloat16 = pytest.mark.skipif(
    not half_lanes(HERE.target), reason="no products of bfloat16 here"
)
needs_float16 = pytest.mark.skipif(
    not has_half_arithmetic(HERE.target), reason="no arithmetic on float16 here"
)


def cases(asked: tuple[Pair, ...]) -> list:
    """Every spec and kernel, those of other kernels than these on request."""
    return [
        pytest.param(
            *case,
            id=f"{case[0].name}-{case[1]}",
            marks=[needs, *([] if case[1] in asked else [pytest.mark.on_request])],
        )
        for needs, every in ((needs_bfloat16, COARSE_CASES), (needs_float16, FINE_CASES))
        for case in every
    ]


def candidate(spec, task: Workload, forms: tuple[Form, ...], choice: int = 0, **fixed) -> Candidate:
    """The setting that a number picks, of those with fixed values of some knobs."""
    space = knob_space(spec, task, HERE.target, HERE.resources, forms)
    every = [space.settings(number) for number in space]
    found = [one for one in every if fixed.items() <= one.items()]
    chosen = found[choice % len(found)]
    return Candidate(implementation=spec.name, settings=tuple(sorted(chosen.items())), forms=forms)


def errors(task: Workload, made: Candidate, arrays: list[Array]) -> tuple[float, float]:
    """The largest error relative to sum |w||x|, and the ratio of signal and noise in dB."""
    arrays = [stored_as(array, form) for array, form in zip(arrays, made.forms, strict=False)]
    result = build_kernel(task, made, HERE.target, HERE.resources).run(arrays)
    exact, scale = numpy_reference(task, arrays)
    noise = np.square(result.astype(np.float64) - exact).sum()
    power = np.square(exact.astype(np.float64)).sum()
    return relative_error(result, exact, scale), 10 * float(np.log10(power / noise))


@pytest.mark.parametrize(
    "every",
    [
        pytest.param(COARSE_CASES, marks=needs_bfloat16, id="bfloat16"),
        pytest.param(FINE_CASES, marks=needs_float16, id="float16"),
    ],
)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    which=st.integers(0, 100),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(8, 15), st.integers(8, 15)),
    channels=st.sampled_from([(64, 32), (64, 48), (68, 21), (96, 32), (64, 40)]),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    blocks=st.tuples(st.sampled_from([0, 4, 16, 32]), st.sampled_from([0, 8, 16, 32])),
    halves=st.tuples(st.booleans(), st.booleans()),
    epilogue=st.sampled_from(["", "b", "bru"]),
    choice=st.integers(0, 10_000),
)
def test_any_shape(
    every, which, batch, extents, channels, padding, blocks, halves, epilogue, choice
) -> None:
    (spec, kernel), (inside, outside) = every[which % len(every)], channels
    padding = tuple(min(p, k - 1) for p, k in zip(padding, kernel * 2, strict=True))
    task = conv((batch, inside, *extents), outside, kernel, epilogue, padding=padding)
    able = spec.factors == HALF or inside % 32 == 0 and outside >= 32
    assert spec.applies(task, HERE.target, HERE.resources) == able
    data, result = (
        blocked(block) if block and count % block == 0 else PLAIN
        for block, count in zip(blocks, channels, strict=True)
    )
    data, result = (
        stored_in(form, spec.factors) if yes else form
        for form, yes in zip((data, result), halves, strict=True)
    )
    forms = forms_for(task, data, result)
    if able and len([*knob_space(spec, task, HERE.target, HERE.resources, forms)]):
        made = candidate(spec, task, forms, choice)
        error, _ = errors(task, made, sample_arguments(task, choice))
        assert error <= spec.error_bound(task) + rounding_of(forms[-1]), str(made)


@pytest.mark.parametrize(("spec", "kernel"), cases(((3, 3), (1, 7))))
def test_the_bound_holds_and_is_not_loose(spec: HalfWinograd, kernel: Pair) -> None:
    task = conv((1, 64, 16, 16), 32, kernel)
    normal = [array.astype(np.float32) for array in sample_arguments(task, 3)]
    signs = np.where(np.indices((16, 16)).sum(axis=0) % 2, -1, 1).astype(np.float32)
    data, weights = normal
    cases = {
        "normal": normal,
        "cut off": [np.maximum(data, 0), weights],
        "positive": [np.abs(data), np.abs(weights)],
        "alternating": [np.abs(data) * signs, weights],
    }
    made = candidate(spec, task, (PLAIN,) * 3)
    worst = {name: errors(task, made, arrays)[0] for name, arrays in cases.items()}
    assert max(worst.values()) <= spec.error_bound(task) <= 6 * max(worst.values()), worst


@pytest.mark.parametrize(
    ("spec", "kernel", "ratio_db"),
    [
        pytest.param(FINE_2, (3, 3), 57.8, marks=needs_float16),
        pytest.param(FINE_4, (3, 3), 51.3, marks=needs_float16),
        pytest.param(FINE_2, (5, 5), 48.0, marks=[needs_float16, pytest.mark.on_request]),
        pytest.param(FINE_1D, (1, 3), 57.7, marks=[needs_float16, pytest.mark.on_request]),
        pytest.param(FINE_1D, (7, 1), 51.4, marks=[needs_float16, pytest.mark.on_request]),
        pytest.param(DIRECT, (3, 3), 55.1, marks=needs_bfloat16),
        pytest.param(TILES_OF_2, (3, 3), 49.5, marks=needs_bfloat16),
        pytest.param(TILES_OF_4, (3, 3), 40.4, marks=needs_bfloat16),
        pytest.param(ALONG_ONE_AXIS, (7, 1), 40.3, marks=needs_bfloat16),
        pytest.param(TILES_OF_2, (5, 5), 39.5, marks=[needs_bfloat16, pytest.mark.on_request]),
        pytest.param(ALONG_ONE_AXIS, (1, 3), 46.5, marks=[needs_bfloat16, pytest.mark.on_request]),
    ],
)
def test_signal_and_noise_are_as_the_concept_says(spec, kernel: Pair, ratio_db: float) -> None:
    """Rectified inputs stored in halves, 128 channels; see docs/concepts/precision.md."""
    task = conv((1, 128, 16, 16), 64, kernel, padding=(kernel[0] // 2, kernel[1] // 2) * 2)
    data, weights = sample_arguments(task, 0)
    lanes = 32 if spec in FINE else 16
    form = stored_in(blocked(lanes), spec.multiplies_in)
    made = candidate(spec, task, (form, PLAIN, blocked(lanes)))
    error, found_db = errors(task, made, [np.maximum(data, 0), weights])
    assert found_db == pytest.approx(ratio_db, abs=0.5) and error <= spec.error_bound(task)


@pytest.mark.parametrize(("spec", "kernel"), cases(tuple(TILES_OF_2.outputs)))
def test_its_errors_are_those_that_are_computed_ahead(spec: HalfWinograd, kernel: Pair) -> None:
    """Also where tiles reach beyond a plane with borders that differ. Those of additions in halves
    are as large, within a decibel together with others."""
    padding = tuple(
        min(most, taps - 1) for most, taps in zip((1, 2, 2, 0), kernel * 2, strict=True)
    )
    task = conv((2, 64, 15, 14), 48, kernel, padding=padding)
    form = stored_in(blocked(16), spec.factors)
    made = candidate(spec, task, (form, PLAIN, blocked(16)))
    arrays = [
        stored_as(array, form)
        for array, form in zip(sample_arguments(task, 0), made.forms, strict=False)
    ]
    result = build_kernel(task, made, HERE.target, HERE.resources).run(arrays)
    errors = result - numpy_reference(task, [array.astype(np.float64) for array in arrays])[0]
    told = spec.rounding_errors(task, arrays)
    assert told.shape == errors.shape
    geometry, power = convolution(task), np.square(errors).sum()
    factors = rounding_errors(spec.form(geometry), geometry, *arrays, spec.factors)
    left = np.square(errors - factors).sum()
    if spec.run(geometry):
        assert abs(10 * np.log10(np.square(told).sum() / power)) < 1.0
        assert left < power - 0.5 * np.square(factors).sum()
    else:
        np.testing.assert_array_equal(told, factors)
        assert left < 1e-2 * power


@pytest.mark.parametrize("strip", [0, 1])
@pytest.mark.parametrize(
    ("spec", "product", "rounding"),
    [
        pytest.param(TILES_OF_4, "vdpbf16ps", "vcvtneps2bf16", marks=needs_bfloat16),
        pytest.param(TILES_OF_2, "vdpbf16ps", "vcvtneps2bf16", marks=needs_bfloat16),
        pytest.param(FINE_4, "vfmadd231ph", "vcvtps2ph", marks=needs_float16),
    ],
)
def test_products_and_rounding_are_the_processors_instructions(
    spec: HalfWinograd, product: str, rounding: str, strip: int
) -> None:
    task = conv((1, 64, 16, 16), 64, padding=(1, 1, 1, 1), epilogue="bu")
    form = stored_in(blocked(32), spec.factors)
    forms = forms_for(task, form, form)
    made = candidate(spec, task, forms, strip=strip, tile_out=2, order="tiles")
    error, _ = errors(task, made, sample_arguments(task, 0))
    assert error <= spec.error_bound(task) + rounding_of(form)
    text = rendered(task, made, HERE.target, HERE.resources, "asm")
    assert text.count(product) >= 8 and text.count(rounding) >= 4


@needs_float16
@pytest.mark.parametrize("spec", FINE, ids=lambda spec: spec.name)
def test_no_run_ends_beyond_float16_where_none_does_directly(spec: HalfWinograd) -> None:
    """With data and weights that stand as badly as they can."""
    for kernel in spec.outputs:
        task = conv((1, 64, 16, 16), 32, kernel)
        form, run = spec.form(convolution(task)), spec.run(convolution(task))
        data, weights = (
            [
                np.abs(double(getattr(way, name))).sum(axis=1)
                for way in (form.vertical, form.horizontal)
            ]
            for name in ("input", "weight")
        )
        enlarged = np.outer(data[0] * weights[0], data[1] * weights[1])
        assert enlarged.max() * run <= 0.53 * 4 * LONGEST_RUN
        assert np.outer(*data).max() < 4, "the margin of stored numbers"

"""Winograd convolutions with products of bfloat16, against numpy."""

from __future__ import annotations

from dataclasses import replace

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
from tilewright.kernels.conv2d_bfloat16 import SPEC as DIRECT
from tilewright.kernels.conv2d_winograd_bfloat16 import SPECS, Bfloat16Winograd
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.search_space import knob_space
from tilewright.measure.checking import (
    numpy_reference,
    relative_error,
    rounding_of,
    sample_arguments,
    stored_as,
)

HALF = "bfloat16"
HERE = replace(local_placement(2), precision=HALF)
TILES_OF_4, TILES_OF_2, ALONG_ONE_AXIS = SPECS
Pair = tuple[int, int]
CASES = [(spec, kernel) for spec in SPECS for kernel in spec.outputs]
pytestmark = pytest.mark.skipif(not half_lanes(HERE.target), reason="no products of bfloat16 here")


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


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    case=st.sampled_from(CASES),
    batch=st.integers(1, 2),
    extents=st.tuples(st.integers(6, 15), st.integers(6, 15)),
    channels=st.sampled_from([(32, 16), (32, 48), (36, 21), (48, 32), (64, 24)]),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    blocks=st.tuples(st.sampled_from([0, 4, 16, 32]), st.sampled_from([0, 8, 16, 32])),
    halves=st.tuples(st.booleans(), st.booleans()),
    epilogue=st.sampled_from(["", "b", "bru"]),
    choice=st.integers(0, 10_000),
)
def test_any_shape(
    case, batch, extents, channels, padding, blocks, halves, epilogue, choice
) -> None:
    (spec, kernel), (inside, outside) = case, channels
    padding = tuple(min(p, k - 1) for p, k in zip(padding, kernel * 2, strict=True))
    task = conv((batch, inside, *extents), outside, kernel, epilogue, padding=padding)
    assert spec.applies(task, HERE.target, HERE.resources)
    data, result = (
        blocked(block) if block and count % block == 0 else PLAIN
        for block, count in zip(blocks, channels, strict=True)
    )
    data, result = (
        stored_in(form, HALF) if yes else form
        for form, yes in zip((data, result), halves, strict=True)
    )
    forms = forms_for(task, data, result)
    if len([*knob_space(spec, task, HERE.target, HERE.resources, forms)]):
        made = candidate(spec, task, forms, choice)
        error, _ = errors(task, made, sample_arguments(task, choice))
        assert error <= spec.error_bound(task) + rounding_of(forms[-1]), str(made)


@pytest.mark.parametrize(
    ("spec", "kernel"),
    [
        pytest.param(*case, marks=() if case[1] in ((3, 3), (1, 7)) else pytest.mark.on_request)
        for case in CASES
    ],
)
def test_the_bound_holds_and_is_not_loose(spec: Bfloat16Winograd, kernel: Pair) -> None:
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
        (DIRECT, (3, 3), 55.1),
        (TILES_OF_2, (3, 3), 49.5),
        (TILES_OF_4, (3, 3), 40.4),
        (ALONG_ONE_AXIS, (7, 1), 40.3),
        pytest.param(TILES_OF_2, (5, 5), 39.5, marks=pytest.mark.on_request),
        pytest.param(ALONG_ONE_AXIS, (1, 3), 46.5, marks=pytest.mark.on_request),
    ],
)
def test_signal_and_noise_are_as_the_concept_says(spec, kernel: Pair, ratio_db: float) -> None:
    """Rectified inputs stored in halves, 128 channels; see docs/concepts/precision.md."""
    task = conv((1, 128, 16, 16), 64, kernel, padding=(kernel[0] // 2, kernel[1] // 2) * 2)
    data, weights = sample_arguments(task, 0)
    form = stored_in(blocked(16), HALF)
    made = candidate(spec, task, (form, PLAIN, blocked(16)))
    error, found_db = errors(task, made, [np.maximum(data, 0), weights])
    assert found_db == pytest.approx(ratio_db, abs=0.5) and error <= spec.error_bound(task)


@pytest.mark.parametrize(("spec", "kernel"), CASES)
def test_its_errors_are_those_that_are_computed_ahead(spec: Bfloat16Winograd, kernel: Pair) -> None:
    """Also where tiles reach beyond a plane with borders that differ."""
    padding = tuple(
        min(most, taps - 1) for most, taps in zip((1, 2, 2, 0), kernel * 2, strict=True)
    )
    task = conv((2, 64, 15, 14), 48, kernel, padding=padding)
    form = stored_in(blocked(16), HALF)
    made = candidate(spec, task, (form, PLAIN, blocked(16)))
    arrays = [
        stored_as(array, form)
        for array, form in zip(sample_arguments(task, 0), made.forms, strict=False)
    ]
    result = build_kernel(task, made, HERE.target, HERE.resources).run(arrays)
    errors = result - numpy_reference(task, [array.astype(np.float64) for array in arrays])[0]
    told = spec.rounding_errors(task, arrays)
    assert told.shape == errors.shape
    assert np.square(errors - told).sum() < 1e-2 * np.square(errors).sum()


@pytest.mark.parametrize("strip", [0, 1])
@pytest.mark.parametrize("spec", [TILES_OF_4, TILES_OF_2])
def test_products_and_rounding_are_the_processors_instructions(
    spec: Bfloat16Winograd, strip: int
) -> None:
    task = conv((1, 32, 16, 16), 32, padding=(1, 1, 1, 1), epilogue="bu")
    form = stored_in(blocked(16), HALF)
    forms = forms_for(task, form, form)
    made = candidate(spec, task, forms, strip=strip, tile_out=2, order="tiles")
    error, _ = errors(task, made, sample_arguments(task, 0))
    assert error <= spec.error_bound(task) + rounding_of(form)
    text = rendered(task, made, HERE.target, HERE.resources, "asm")
    assert text.count("vdpbf16ps") >= 8 and text.count("vcvtneps2bf16") >= 4

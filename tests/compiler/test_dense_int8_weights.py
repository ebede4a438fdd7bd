"""Kernels with weights on codes, and networks of them, against numpy and ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emulated_kernels
import tilewright
from emulated_kernels import Case
from helpers.kernels.in_halves import check
from helpers.networks.decoders import VOCABULARY, GrowingLoop, decoder_model
from tilewright import UsageError
from tilewright.compiler.build import rendered
from tilewright.core.forms import PLAIN, stored_in
from tilewright.core.records import Candidate
from tilewright.hardware.device import local_placement, parse_target
from tilewright.kernels.dense_int8_weights import CODED, SPEC
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.checking import (
    numpy_reference,
    relative_error,
    sample_arguments,
    stored_as,
)
from tilewright.testing.implementations import ImplementationConformance, single

CODES = (PLAIN, CODED, PLAIN)
HERE = replace(local_placement(2), precision="int8-weights")
AVX2 = parse_target("llvm -mcpu=haswell", 2)
AVX512 = parse_target("llvm -mcpu=x86-64-v4", 2)


class TestConformance(ImplementationConformance):
    spec = SPEC
    workloads = (single("dense", (3, 33), (33, 70), constants=(1,)),)
    forms = (CODES,)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    rows=st.sampled_from([(1,), (5,), (2, 7), (17,), ()]),
    depth=st.sampled_from([1, 33, 130]),
    columns=st.sampled_from([3, 40, 96]),
    halves=st.tuples(st.booleans(), st.booleans()),
    choice=st.integers(0, 10_000),
    on=st.sampled_from([HERE, AVX2]),
)
def test_numbers(rows, depth, columns, halves, choice, on) -> None:
    data, result = (stored_in(PLAIN, "bfloat16" if half else None) for half in halves)
    task = single("dense", (*rows, depth), (depth, columns), constants=(1,))
    check(task, on, SPEC.name, (data, CODED, result), choice)


def test_a_kernel_that_reads_other_codes_is_found() -> None:
    """The reference has the numbers that codes stand for: those of the weights are off."""
    task = single("dense", (1, 64), (64, 32), constants=(1,))
    arrays = sample_arguments(task, 0)
    left = [stored_as(array, form) for array, form in zip(arrays, CODES, strict=False)]
    result, scale = numpy_reference(task, left)
    assert relative_error(result, *numpy_reference(task, arrays)) > 10 * SPEC.error_bound(task)
    assert relative_error(result, result, scale) == 0.0


def test_codes_are_widened_in_registers_and_fetched_ahead() -> None:
    task = single("dense", (4, 768), (768, 2304), constants=(1,))
    candidate = Candidate(
        implementation=SPEC.name,
        settings=(("block", 64), ("order", "columns"), ("tile_rows", 4)),
        forms=CODES,
    )
    text = rendered(task, candidate, AVX512.target, AVX512.resources, "asm")
    loop = next(
        part for part in text.split("\n.LBB") if part.count("vfmadd") == 16 and "jne" in part
    )
    inside = loop[: loop.index("jne")]
    assert inside.count("vpmovsxbd") == inside.count("vcvtdq2ps") == 4, "once for four rows"
    assert "prefetch" in inside and "(%rsp" not in inside


@pytest.mark.skipif(
    emulated_kernels.emulator() is None,
    reason="no QEMU for user programs, or no compiler for ARM, is here",
)
def test_numbers_on_arm() -> None:
    case = Case(SPEC.name, (), "cortex-a72")
    task = single("dense", (3, 33), (33, 40), constants=(1,))
    candidate, _ = default_candidate(task, CODES, case.placement)
    given = [
        stored_as(array, form)
        for array, form in zip(sample_arguments(task, 0), CODES, strict=False)
    ]
    result = emulated_kernels.emulated(case, task, candidate, given)
    assert relative_error(result, *numpy_reference(task, given)) <= SPEC.error_bound(task)


def test_a_decoder_steps_with_weights_on_codes() -> None:
    model = decoder_model("gpt2", layers=1)
    decoder = tilewright.decoder(model, tokens=40, cache=16, threads=1, precision="int8-weights")
    loop = GrowingLoop(decoder_model("gpt2", layers=1))
    for theirs, ours in (
        (loop([3, 1, 4]), decoder.prefill([3, 1, 4])),
        (loop([5]), decoder.step(5)),
    ):
        off = np.abs(ours - theirs).max() / np.abs(theirs).max()
        assert ours.shape == (VOCABULARY,) and 1e-4 < off < 3e-2, "codes are used, and near"
    with pytest.raises(UsageError, match="chosen by inputs"):
        tilewright.decoder(model, precision="auto")

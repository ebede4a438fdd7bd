"""Schedules for GPUs, printed as OpenCL and run by PoCL on the CPU, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.error import InternalError

import cuda_bars
from cuda_shapes import FAMILIES
from helpers.kernels.opencl_kernels import INSTALLED, opencl_program, run_opencl
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments

H100 = cuda_bars.placement("cuda -model=H100")
SHUFFLE, WITHOUT_WORDS = "tvm_warp_shuffle", ("rows", "attention", "codes")
"""Where lanes of a warp exchange values, or words of four codes are multiplied, OpenCL has no word
for it."""
pytestmark = pytest.mark.skipif(not INSTALLED, reason="PoCL is not installed")


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind not in WITHOUT_WORDS])
def test_default_settings_are_right_in_opencl(kind: str) -> None:
    task = FAMILIES[kind](np.random.default_rng(11))
    expected, scale = numpy_reference(task, sample_arguments(task, 0))
    ran: list[str] = []
    for candidate, _ in ranked_defaults(task, cuda_bars.plain(task), H100):
        if candidate.implementation == cuda_bars.UNTUNED:
            continue
        try:
            program = opencl_program(task, candidate, H100)
        except InternalError as error:
            assert SHUFFLE in str(error)
            continue
        found = run_opencl(program, task)
        bound = implementation(candidate.implementation).error_bound(task)
        assert relative_error(found, expected, scale) <= bound, candidate
        ran.append(candidate.implementation)
    assert ran

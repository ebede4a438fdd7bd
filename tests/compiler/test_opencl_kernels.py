"""Schedules for GPUs, printed as OpenCL and run by PoCL on the CPU, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import cuda_bars
from cuda_shapes import FAMILIES
from helpers.kernels.opencl_kernels import INSTALLED, opencl_program, run_opencl
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import ranked_defaults
from tilewright.measure.checking import numpy_reference, relative_error, sample_arguments

H100 = cuda_bars.placement("cuda -model=H100")
SHUFFLES = ("cuda_rows",)
"""Where lanes of a warp exchange values, OpenCL has no word for it."""
pytestmark = pytest.mark.skipif(not INSTALLED, reason="PoCL is not installed")


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind != "rows"])
def test_default_settings_are_right_in_opencl(kind: str) -> None:
    task = FAMILIES[kind](np.random.default_rng(11))
    expected, scale = numpy_reference(task, sample_arguments(task, 0))
    ran: list[str] = []
    for candidate, _ in ranked_defaults(task, cuda_bars.plain(task), H100):
        if candidate.implementation in (cuda_bars.UNTUNED, *SHUFFLES):
            continue
        found = run_opencl(opencl_program(task, candidate, H100), task)
        bound = implementation(candidate.implementation).error_bound(task)
        assert relative_error(found, expected, scale) <= bound, candidate
        ran.append(candidate.implementation)
    assert ran

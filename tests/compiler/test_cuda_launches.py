"""Launches that no driver would start, and CUDA text that is not executed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tilewright.core.errors import ModelError, TargetError
from tilewright.hardware.gpus import CudaLaunch
from tilewright.hardware.target import parse_gpu
from tilewright.testing import cuda_execution
from tilewright.testing.cuda_execution import (
    LaunchRefused,
    check_launch,
    compiler,
    cuda_executable,
)
from tilewright.testing.cuda_text import cuda_functions

executed = pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here")
EMPTY = (
    "__global__ void __launch_bounds__(128) empty(float* out) { __shared__ float x[N]; x[0] = 1; }"
)


def launch(**given: Any) -> CudaLaunch:
    named: dict[str, Any] = dict(
        kernel="empty", grid=(1, 1, 1), block=(1, 1, 1), arguments=("out",)
    )
    return CudaLaunch(**(named | given))


def test_tvm_compiles_nothing_where_the_driver_is() -> None:
    """As on a machine with a card, where TVM's own module of CUDA compiles what it is given."""
    code = """
import tvm_ffi
from tilewright.compiler.builders.cuda import program_of
from tilewright.core.forms import PLAIN
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.targeting import placement_of
from tilewright.testing.implementations import single

@tvm_ffi.register_global_func("ffi.Module.create.cuda", override=True)
def module(*_given):
    raise AssertionError("TVM compiles the text")

placement = placement_of("cuda -model=H100", None, None)
relu = single("relu", (1, 4096))
candidate, *_ = default_candidate(relu, (PLAIN, PLAIN), placement)
print(program_of(relu, candidate, placement.target, placement.resources).source)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "__global__" in done.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(grid=(1, 65_536, 1)), "65,536 blocks along y; 1 to 65,535 can be had on sm_75"),
        (dict(grid=(1, 1, 90_000)), "blocks along z"),
        (dict(grid=(2**31, 1, 1)), "blocks along x"),
        (dict(grid=(0, 1, 1)), "0 blocks along x"),
        (dict(block=(32, 33, 1)), "1,056 threads of a block"),
        (dict(block=(1, 1, 65)), "65 threads of a block along z"),
        (
            dict(dynamic_shared_bytes=65_537),
            "65,537 bytes of shared memory; 0 to 65,536 can be had on sm_75",
        ),
    ],
)
def test_a_launch_that_no_driver_takes(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchRefused, match=said):
        check_launch(launch(**given), parse_gpu("cuda -arch=sm_75"))


def test_a_launch_at_the_limits() -> None:
    at_limits = launch(
        grid=(2**31 - 1, 65_535, 65_535), block=(16, 1, 64), dynamic_shared_bytes=65_536
    )
    check_launch(at_limits, parse_gpu("cuda -arch=sm_75"))
    with pytest.raises(LaunchRefused, match="static shared memory"):
        check_launch(launch(), parse_gpu("cuda -arch=sm_75"), 49_153)


@executed
def test_limits_of_the_text() -> None:
    out = {"out": np.zeros(1, np.float32)}
    with pytest.raises(LaunchRefused, match="its launch bounds allow 128"):
        cuda_executable(EMPTY.replace("N", "4")).run([launch(block=(129, 1, 1))], out)
    with pytest.raises(LaunchRefused, match="49,156 bytes of static shared memory"):
        cuda_executable(EMPTY.replace("N", "12289")).run([launch()], out)


@executed
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(kernel="full"), "no kernel 'full'; it has empty"),
        (dict(arguments=()), "takes 1 arguments, not 0"),
        (dict(arguments=("in",)), "'in' names none"),
        (dict(arguments=(3,)), "3 names none"),
    ],
)
def test_arguments_that_do_not_fit(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        cuda_executable(EMPTY.replace("N", "4")).run(
            [launch(**given)], {"out": np.zeros(1, np.float32)}
        )


@executed
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'asm volatile("wgmma.fence.sync.aligned;");',
            "instruction wgmma.fence.sync.aligned in line 2",
        ),
        ("out[0] = undeclared;", r"kernel\.cu:2:.*undeclared"),
        ("{", "bracket of line 1 .* never closed"),
    ],
)
def test_text_that_is_not_executed(text: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        cuda_executable(f"__global__ void bad(float* out) {{\n {text} }}")


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_execution, "compiler", lambda: None)
    with pytest.raises(TargetError, match="C.. compiler"):
        cuda_executable("__global__ void never_compiled_before(float* out) {}")


def test_kernels_of_a_text() -> None:
    text = """
    extern "C" __global__ void __launch_bounds__(64, 2) first(const float* __restrict__ a, int n);
    __device__ float twice(float x) { return 2 * x; /* } */ }
    extern "C" __global__ void __launch_bounds__(64, 2) first(const float* __restrict__ a, int n) {
      asm volatile("}"); // }
    }
    __global__ void second() {}
    """
    first, second = cuda_functions(text).values()
    assert (first.name, first.most_threads) == ("first", 64)
    assert [(it.type, it.name, it.is_array) for it in first.parameters] == [
        ("float*", "a", True),
        ("int", "n", False),
    ]
    assert text[slice(*first.body)].strip().endswith("// }\n    }")
    assert (second.name, second.most_threads, second.parameters) == ("second", None, ())

"""Timing single kernels: rotation, rewriting, giving up. No time decides anything here."""

from __future__ import annotations

import numpy as np
import tvm_ffi
from one_kernel import DEVICE, step
from packed_kernel import constants_workload

from tilewright.compiler.build import build_kernel
from tilewright.compiler.kernel_runs import repeat_kernel, time_kernel
from tilewright.compiler.rewriting import rewriter
from tilewright.core.records import Protocol
from tilewright.tune.space import default_candidate

TASK = constants_workload([(4, 64), (64, 32)], [1], [step("dense", 0, 1)])
PLAIN = ("plain",) * 3


def kernel():
    return build_kernel(TASK, default_candidate(TASK, PLAIN, DEVICE)[0], DEVICE)


def test_as_many_samples_as_repeats() -> None:
    protocol = Protocol(repeats=4, sample_s=1e-4, rotation_bytes=1 << 16)
    samples = time_kernel(kernel(), TASK, protocol, 0, float("inf"))
    assert len(samples) == 4 and all(sample > 0 for sample in samples)


def test_a_hopeless_kernel_is_sampled_once() -> None:
    assert len(time_kernel(kernel(), TASK, Protocol(), 0, 0.0)) == 1


def test_rewriting_keeps_the_values() -> None:
    values = np.arange(64 * 5 + 3, dtype=np.float32)
    memory = values.copy()
    rewrite = rewriter([tvm_ffi.from_dlpack(memory)])
    memory[: 64 * 5] = -1
    rewrite()
    np.testing.assert_array_equal(memory, values)


def test_nothing_to_rewrite() -> None:
    rewriter([])()
    few = np.ones(3, np.float32)
    rewriter([tvm_ffi.from_dlpack(few)])()
    assert few.tolist() == [1, 1, 1]


def test_a_kernel_in_a_loop() -> None:
    protocol = Protocol(rotation_bytes=1 << 16)
    assert repeat_kernel(kernel(), TASK, protocol, 0, 0.0) == 1
    assert repeat_kernel(kernel(), TASK, protocol, 0, 0.02) > 10

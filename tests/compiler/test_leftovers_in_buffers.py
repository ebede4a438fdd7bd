"""Kernels compute with what they were given, never with what buffers hold by chance: such numbers
would change no result, but may be denormal, which is slow."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from helpers.kernels.attention_tasks import attention
from helpers.kernels.leftovers import leave_denormals, meets_denormals, needs_x86
from helpers.kernels.one_kernel import PLACEMENT, all_settings
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.records import Candidate
from tilewright.core.targets import threads_alone
from tilewright.graph.workload import Workload
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import default_candidate
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.testing.implementations import candidate_of, plain

pytestmark = needs_x86

ALONE = replace(PLACEMENT, resources=threads_alone(1))
KEYS = attention((1, 5, 24), (1, 21, 24), (1, 21, 38), heads=2)
OPERATORS = ("conv2d[c=5,h=9,k=3,out=13]", "conv2d[c=20,h=9,k=3,out=20]", "dense[k=13,n=27]")


def prepared(task: Workload, candidate: Candidate) -> Callable[[], object]:
    """One call of a kernel, on numbers that are far from zero."""
    import tvm

    kernel = build_kernel(task, candidate, ALONE.target, ALONE.resources)
    rng = np.random.default_rng(0)
    tensors = [
        tvm.runtime.tensor(rng.uniform(1, 2, shape).astype(dtype))
        for shape, dtype in kernel.argument_types
    ]
    return lambda: kernel.call(*tensors)


@pytest.mark.parametrize("choice", range(8))
def test_attention_multiplies_no_leftovers_behind_keys_and_columns(choice):
    found = all_settings(KEYS, "attention_rows", plain(KEYS))
    settings = found[choice * (len(found) - 1) // 7]
    call = prepared(KEYS, candidate_of(implementation("attention_rows"), settings, plain(KEYS)))
    call()
    leave_denormals()
    assert not meets_denormals(call)


@pytest.mark.parametrize("operator", OPERATORS)
def test_other_kernels_do_not_either(operator):
    for task in prepare(f"op:{operator}", ModelOptions(), ALONE).tasks.values():
        candidate, _ = default_candidate(task.workload, task.forms, ALONE, 1e-4)
        call = prepared(task.workload, candidate)
        call()
        leave_denormals()
        assert not meets_denormals(call)


def test_one_that_does_is_found_out():
    import tvm

    add = tvm.compile(_sum_of_a_buffer(), tvm.target.Target("llvm")).jit()["main"]
    result = tvm.runtime.tensor(np.zeros(1, np.float32))
    leave_denormals()
    assert meets_denormals(lambda: add(result))
    assert not meets_denormals(lambda: np.ones(8, np.float32) + 1)


def _sum_of_a_buffer():
    """A kernel that adds up what is in a buffer that nobody filled."""
    from tvm.script import ir as I
    from tvm.script import tirx as T

    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def main(result: T.Buffer((1,), "float32")):
            left = T.alloc_buffer((1 << 16,))
            result[0] = T.float32(1)
            for i in range(1 << 16):
                result[0] = result[0] + left[i]

    return Module

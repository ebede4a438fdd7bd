"""Which kernels look at their operands themselves: those whose operands come from outside."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

from helpers.kernels.one_kernel import PLACEMENT, step, workload
from helpers.networks.small_networks import Builder, compiled
from tilewright.compiler.build import compiled as as_it_is
from tilewright.compiler.build import compiled_kernel, given, kernel_module
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.network import compile_network
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.plans import packed_constant

EXTENTS = (4, 8)


def checks(library: tvm.runtime.Executable) -> int:
    """How often a library tells whose operand is wrong."""
    return library.mod.inspect_source("ll").count(" on argument #")


def test_a_kernel_alone_is_compiled_without_its_checks() -> None:
    task = workload([EXTENTS], step("relu", 0))
    candidate = Candidate(
        implementation="injective", settings=(("vector", 8),), forms=(PLAIN, PLAIN)
    )
    target, resources = PLACEMENT.target, PLACEMENT.resources
    module = kernel_module(task, candidate, target, resources)
    assert checks(as_it_is(module, target, resources)) > 0
    executable = compiled_kernel(module, target, resources)
    assert checks(executable) == 0
    x = np.random.default_rng(0).standard_normal(EXTENTS, np.float32)
    result = tvm.runtime.empty(EXTENTS, "float32")
    executable.jit()["main"](tvm.runtime.tensor(x), result)
    np.testing.assert_array_equal(result.numpy(), np.maximum(x, 0))


def test_what_a_kernel_alone_computes_is_compared_with_what_it_takes() -> None:
    task = workload([EXTENTS], step("relu", 0))
    candidate = Candidate(
        implementation="injective", settings=(("vector", 8),), forms=(PLAIN, PLAIN)
    )
    kernel = build_kernel(task, candidate, PLACEMENT.target, PLACEMENT.resources)
    np.testing.assert_array_equal(kernel.run([-np.ones(EXTENTS, np.float32)]), np.zeros(EXTENTS))
    with pytest.raises(RuntimeError, match="the kernel takes .*, and is given .*float64"):
        kernel.run([np.ones(EXTENTS)])


def asserting() -> tirx.PrimFunc:
    """A kernel that copies one number, and refuses one that is not above zero."""
    with IRBuilder() as builder, script.prim_func():
        script.func_name("main")
        script.func_attr({"global_symbol": "main", "tirx.noalias": True})
        source = script.arg("source", script.buffer((1,), "int32"))
        result = script.arg("result", script.buffer((1,), "int32"))
        with script.Assert(source[0] > 0, "not above zero", "ValueError"):
            script.buffer_store(result, source[0], [0])
    return builder.get()


def test_what_a_kernel_asserts_itself_stays() -> None:
    kernel = asserting()
    assert given(kernel).same_as(kernel)
    module = tvm.IRModule({"main": kernel})
    call = compiled_kernel(module, PLACEMENT.target, PLACEMENT.resources).jit()["main"]
    result = tvm.runtime.empty((1,), "int32")
    with pytest.raises(ValueError, match="not above zero"):
        call(tvm.runtime.tensor(np.zeros(1, np.int32)), result)


@pytest.fixture(scope="module")
def small() -> tuple[NetworkPlan, dict[str, Array]]:
    """A network whose first kernel reads the input, another one constants, and the last neither."""
    b = Builder()
    images = b.conv(b.conv(b.input(1, 8, 16, 16), 16), 32)
    graph = b.graph(b.add("softmax", images, axis=1))
    return compiled(graph)[0], dict(graph.constants)


def test_a_network_looks_at_how_its_inputs_lie_in_memory(
    small: tuple[NetworkPlan, dict[str, Array]],
) -> None:
    plan, constants = small
    executable, _ = compile_network(plan, PLACEMENT.target)
    machine = tvm.relax.VirtualMachine(executable.jit(), tvm.cpu())
    weights = [tvm.runtime.tensor(packed_constant(each, constants)) for each in plan.constants]
    tensor = tvm.runtime.tensor(np.zeros((1, 16, 16, 8), np.float32))
    machine["main"](tvm.runtime.tensor(np.zeros((1, 8, 16, 16), np.float32)), *weights)
    turned = tvm_ffi.from_dlpack(np.from_dlpack(tensor).transpose(0, 3, 1, 2))
    with pytest.raises(ValueError, match="compact array"):
        machine["main"](turned, *weights)
    with pytest.raises(Exception, match="float32"):
        machine["main"](tvm.runtime.tensor(np.zeros((1, 8, 16, 16), np.float64)), *weights)


def test_a_network_looks_at_how_its_constants_lie_in_memory(
    small: tuple[NetworkPlan, dict[str, Array]],
) -> None:
    plan, constants = small
    executable, _ = compile_network(plan, PLACEMENT.target)
    machine = tvm.relax.VirtualMachine(executable.jit(), tvm.cpu())
    image = tvm.runtime.tensor(np.zeros((1, 8, 16, 16), np.float32))
    weights = [tvm.runtime.tensor(packed_constant(each, constants)) for each in plan.constants]
    for number, each in enumerate(plan.constants):
        apart = tvm_ffi.from_dlpack(np.zeros((*each.shape, 2), np.float32)[..., 0])
        with pytest.raises(ValueError, match="compact array|strides"):
            machine["main"](image, *weights[:number], apart, *weights[number + 1 :])
    machine["main"](image, *weights)


def test_only_the_kernels_that_read_what_is_given_have_checks(
    small: tuple[NetworkPlan, dict[str, Array]],
) -> None:
    plan = small[0]
    executable, _ = compile_network(plan, PLACEMENT.target)
    (library,) = executable.mod.imports
    text = library.inspect_source("ll")
    reading = {
        plan.symbol(call)
        for call in plan.calls
        if call.constants or {*plan.inputs} & {*call.inputs}
    }
    others = {*plan.symbols.values()} - reading
    assert reading and others
    assert {symbol for symbol in reading | others if f'c"{symbol}(' in text} == reading

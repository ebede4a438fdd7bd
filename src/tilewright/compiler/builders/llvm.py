"""Kernels for CPUs: scheduled for TVM, compiled in memory by LLVM, timed in this process."""

from __future__ import annotations

from time import perf_counter

from tilewright.compiler.build import (
    argument_types,
    compiled_kernel,
    kernel_hash_of,
    kernel_identity,
    kernel_module,
    rendered,
)
from tilewright.compiler.kernel_runs import BuiltKernel
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.hardware.tile_permission import tiles_permitted


def build_kernel(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> BuiltKernel:
    """Lower and compile one candidate in memory, without a linker."""
    began = perf_counter()
    module = kernel_module(workload, candidate, target, resources)
    library = compiled_kernel(module, target, resources).jit()
    tiles_permitted()
    return BuiltKernel(
        call=library["main"],
        argument_types=argument_types(module["main"]),
        kernel_hash=kernel_hash_of(module["main"]),
        build_s=perf_counter() - began,
        workload=workload,
        candidate=candidate,
    )


class _Llvm:
    name = "llvm"
    identify = staticmethod(kernel_identity)
    build = staticmethod(build_kernel)
    render = staticmethod(rendered)


BUILDER = _Llvm()

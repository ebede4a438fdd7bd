"""From a scheduled kernel to something that can be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import tvm
import tvm_ffi
from tvm import tirx

from tilewright.compiler.lower.registry import lower
from tilewright.compiler.pipeline import GENERATION, compiled
from tilewright.core.fingerprints import digest
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltKernel:
    """A kernel compiled in memory.

    `call` takes one tensor per argument (physical shapes) and the result's tensor. `kernel_hash`
    identifies the scheduled kernel.
    """

    call: Callable[..., None]
    argument_types: tuple[tuple[tuple[int, ...], str], ...]
    kernel_hash: str
    build_s: float


def kernel_module(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> tvm.IRModule:
    """The scheduled module; its only function is called `main`."""
    return lower(workload, candidate, target, resources).mod


def kernel_hash_of(function: tirx.PrimFunc) -> str:
    """Identity of a kernel: the structural hash of its schedule, and how that is compiled."""
    return digest(f"{GENERATION} {tvm_ffi.structural_hash(function, map_free_vars=True)}")


def kernel_identity(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> str:
    """The hash of a candidate's scheduled kernel, without compiling it."""
    return kernel_hash_of(kernel_module(workload, candidate, target, resources)["main"])


def build_kernel(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> BuiltKernel:
    """Lower and compile one candidate in memory, without a linker."""
    began = perf_counter()
    module = kernel_module(workload, candidate, target, resources)
    function = module["main"]
    types = tuple(
        (tuple(int(extent) for extent in buffer.shape), str(buffer.dtype))
        for buffer in function.params
    )
    library = compiled(module, target, resources).jit()
    return BuiltKernel(
        call=library["main"],
        argument_types=types,
        kernel_hash=kernel_hash_of(function),
        build_s=perf_counter() - began,
    )


def rendered(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources, view: str
) -> str:
    """The kernel as text: `tir` or `asm`."""
    module = kernel_module(workload, candidate, target, resources)
    if view == "tir":
        return module.script()
    return compiled(module, target, resources).mod.inspect_source("asm")


def accept_target(text: str) -> None:
    """Raise TVM's own error when it does not take the target."""
    tvm.target.Target(text)

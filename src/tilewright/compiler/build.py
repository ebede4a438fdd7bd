"""The scheduled kernel of a candidate: its module, its identity, its text."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from tilewright.compiler.lower.registry import lowered
from tilewright.compiler.pipeline import GENERATION, compiled
from tilewright.core.fingerprints import digest
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload


def kernel_module(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> tvm.IRModule:
    """The scheduled module; its only function is called `main`."""
    return lowered(workload, candidate, target, resources)[1].mod


def kernel_hash_of(function: tirx.PrimFunc) -> str:
    """Identity of a kernel: the structural hash of its schedule, and how that is compiled."""
    return digest(f"{GENERATION} {tvm_ffi.structural_hash(function, map_free_vars=True)}")


def kernel_identity(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> str:
    """The hash of a candidate's scheduled kernel, without compiling it."""
    return kernel_hash_of(kernel_module(workload, candidate, target, resources)["main"])


def argument_types(function: tirx.PrimFunc) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Physical shapes and types of a kernel's arguments and its result."""
    return tuple((tuple(map(int, buffer.shape)), str(buffer.dtype)) for buffer in function.params)


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

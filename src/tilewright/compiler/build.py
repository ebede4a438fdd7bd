"""The scheduled kernel of a candidate, its identity, and TVM's way from there to machine code.

TVM takes every buffer beyond a kilobyte from a pool, register tiles included: a call per tile, and
a pointer that LLVM cannot turn into registers on its own. It keeps the tile in registers only
where it can prove that nothing in the loop touches memory of unknown origin, and a prefetch is
such a thing. Small buffers belong on the stack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.instrument import pass_instrument
from tvm_ffi import structural_map, structural_visit

from tilewright.compiler.backends import load_backends
from tilewright.compiler.inverses import with_inverses_ahead
from tilewright.compiler.lower.registry import lowered
from tilewright.compiler.lower.rounding import with_instructions
from tilewright.compiler.prefetch import with_prefetches
from tilewright.compiler.tile_setup import with_tiles
from tilewright.core.codec import digest
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Workspaces
from tilewright.kernels.in_place import overwritable

NAME = "tilewright"
GENERATION = 2
"""Raised when the same scheduled kernel is compiled to other code; what was measured of it before
then does not count any more. The first one had TVM's own passes."""
_BASE = "s_tir"
_APART = "tirx.noalias"
"""Whether LLVM may take it that no two arguments share memory."""
_LEAVE_ALONE = "disable_lower_builtin"
_GIVEN = "tilewright.given"
"""Set on a kernel whose operands are made from what it says that it takes."""
_STACK_BYTES = 8192
"""Four times the largest register file; threads have megabytes of stack."""


def compiled_kernel(module: tvm.IRModule, target: Target, resources: Resources) -> Any:
    """A module whose only function is a kernel, `main`, as an executable whose caller makes the
    operands from `argument_types`, as `given` wants it."""
    alone = tvm.IRModule({"main": given(module["main"])}, attrs=module.attrs)
    return compiled(alone, target, resources)


def compiled(module: tvm.IRModule, target: Target, resources: Resources) -> Any:
    """A module of kernels as an executable for a device."""
    generated = compiled_for(target, resources)
    return tvm.compile(instructed(module), generated, tir_pipeline=registered())


def instructed(module: tvm.IRModule) -> tvm.IRModule:
    """Kernels whose marks are turned into what they stand for: no compiler of TVM's knows them."""
    return with_prefetches(with_tiles(module))


def compiled_for(target: Target, resources: Resources) -> tvm.target.Target:
    """TVM's target, with the tile registers that kernels use; those are no part of the text that
    tells devices apart."""
    given = json.loads(target.tvm_target(resources))
    more = [f"+{name}" for name in target.features if name.startswith("amx-")]
    if "avx512vnni" in target.features:
        more.append("+fast-dpwssd")
    if more:
        given["mattr"] = [*given.get("mattr", ()), *more]
    return tvm.target.Target(given)


@cache
def registered() -> str:
    """The name under which TVM knows the passes."""
    passes: Any = tirx.get_tir_pipeline(_BASE)
    before, finish_host, finish_device = passes

    def finish() -> tvm.transform.Pass:
        return tvm.transform.Sequential(
            [_unchecked, _on_stack, with_inverses_ahead, with_instructions, finish_host()]
        )

    tirx.register_tir_pipeline(NAME, lambda: (before, finish, finish_device))
    return NAME


def given(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel for a caller that makes each operand contiguous and of the shape and type that
    `argument_types` gives: it is compiled without TVM's checks of its operands, which take
    a fifth of LLVM's time for a small kernel. One that asserts something itself keeps them all."""
    asserted: list[Any] = []

    def note(node: Any, _visitor: Any) -> None:
        asserted.append(node)

    structural_visit(kernel.body, [(tirx.AssertStmt, note)])
    return kernel if asserted else kernel.with_attr(_GIVEN, True)


@tirx.transform.prim_func_pass(opt_level=0)
def _unchecked(function: tirx.PrimFunc, _module: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
    if _GIVEN not in function.attrs:
        return function
    return function.with_body(structural_map(function.body, (tirx.AssertStmt, _left_out)))


def _left_out(_check: Any) -> Any:
    return tirx.Evaluate(tirx.const(0, "int32"))


@tirx.transform.prim_func_pass(opt_level=0)
def _on_stack(function: tirx.PrimFunc, _module: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
    return function.with_body(structural_map(function.body, (tirx.AllocBuffer, _kept)))


def _kept(node: Any) -> Any:
    """A buffer on the stack where it is small; what is left comes from the pool."""
    if not 0 <= _bytes(node.buffer) <= _STACK_BYTES:
        return node
    return tirx.AllocBuffer(node.buffer, {_LEAVE_ALONE: tirx.IntImm("bool", 1)})


def _bytes(buffer: Any) -> int:
    """Of a buffer of known size; -1 for any other."""
    if not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
        return -1
    kind = tvm.DataType(str(buffer.dtype))
    return prod(map(int, buffer.shape)) * kind.bits * kind.lanes // 8


def pooled(shape: Sequence[int], dtype: str) -> int:
    """The bytes that a buffer takes from the pool: none where it is on the stack."""
    kind = tvm.DataType(dtype)
    size = prod(shape) * kind.bits * kind.lanes // 8
    return size if size > _STACK_BYTES else 0


@pass_instrument
class WorkspaceReader:
    """An instrument of TVM's passes that notes the workspaces of every kernel it sees; `found` has
    them by the kernel's symbol."""

    def __init__(self) -> None:
        self.found: dict[str, Workspaces] = {}

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Read the kernels once their small buffers have gone to the stack."""
        if info.name != "_on_stack":
            return
        self.found |= {
            variable.name_hint: _workspaces(function.body)
            for variable, function in module.functions.items()
            if isinstance(function, tirx.PrimFunc)
        }


def _workspaces(body: Any) -> Workspaces:
    """The buffers from the pool: those of parallel loops are each thread's own. One of unknown size
    counts as nothing."""
    found: dict[bool, list[int]] = {True: [], False: []}
    around: list[Any] = []

    def enter(loop: Any, visitor: Any) -> None:
        around.append(loop.kind)
        visitor.default_visit(loop)
        around.pop()

    def note(node: Any, _visitor: Any) -> None:
        if _LEAVE_ALONE not in node.annotations:
            found[tirx.ForKind.PARALLEL in around].append(max(0, _bytes(node.buffer)))

    structural_visit(body, [(tirx.For, enter), (tirx.AllocBuffer, note)])
    return Workspaces(shared=tuple(found[False]), own=tuple(found[True]))


def kernel_module(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> tvm.IRModule:
    """The scheduled module; its only function is called `main`."""
    module = lowered(workload, candidate, target, resources)[1].mod
    if overwritable(workload, candidate):
        module["main"] = module["main"].with_attr(_APART, False)
    return module


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
    return compiled_kernel(module, target, resources).mod.inspect_source("asm")


def accept_target(text: str) -> None:
    """Raise TVM's own error when it does not take the target."""
    load_backends()  # they name devices
    tvm.target.Target(text)

"""CUDA code of a workload, and what can be said of it before it runs: launches, memory, loads.

The way from a scheduled module to CUDA source is TVM's own (`tirx.build`), taken step by step, so
that device functions can be read; NVIDIA's compiler is asked directly, for a cubin and a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.tirx.build import codegen_build
from tvm_ffi import structural_visit, structural_walk

from tilewright.compiler.cuda.compilers import compiled_source
from tilewright.compiler.cuda.launches import split
from tilewright.compiler.features.loops import CONDITIONAL, evaluated, operator_name
from tilewright.compiler.lower.registry import lowered
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaCode, CudaKernel

_WARP = 32
_SECTOR_BYTES = 32
_AXES = ("x", "y", "z")

_COMPARING = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)

Values = npt.NDArray[np.int64]


def read_launch(name: str, function: tirx.PrimFunc) -> CudaKernel:
    """The facts of one device function after TVM split it from its host."""
    walk = _Walk(function.body)
    walk.read(function.body)
    loads = walk.loads
    return CudaKernel(
        name=name,
        grid=walk.sizes("blockIdx"),
        block=walk.sizes("threadIdx"),
        loads=loads,
        guarded=walk.guarded,
        comparisons=walk.comparisons,
        stores=walk.stores,
        sectors=walk.sectors / loads if loads else 0.0,
        shared_bytes=walk.shared_bytes,
        parameters=tuple(str(it.name).removesuffix("_ptr") for it in function.params),
    )


class _Walk:
    """Sums over the statements of a function, for one thread."""

    def __init__(self, body: Any) -> None:
        self._axes: dict[Any, tuple[str, int]] = {}
        structural_walk(body, (tirx.AttrStmt, self._axis), order="pre")
        self._known: dict[Any, Any] = self._warp()
        self._executions, self._guards = 1.0, 0
        self.loads = self.guarded = self.stores = self.sectors = self.comparisons = 0.0
        self.shared_bytes = 0

    def _axis(self, node: Any) -> None:
        """Note a variable that is bound to a thread axis, with the axis' name and its extent."""
        if node.attr_key == "thread_extent":
            self._axes[node.node.var] = (str(node.node.thread_tag), int(node.value))

    def sizes(self, prefix: str) -> tuple[int, int, int]:
        """Extents along x, y and z; 1 where nothing is bound."""
        found = dict(self._axes.values())
        x, y, z = (found.get(f"{prefix}.{axis}", 1) for axis in _AXES)
        return x, y, z

    def read(self, node: Any) -> None:
        """Count a statement or a value and what is in it, but for how indices are found."""
        callbacks = [
            (tirx.For, self._loop),
            (tirx.IfThenElse, self._branch),
            (tirx.BufferStore, self._store),
            (tirx.Bind, self._bind),
            (tirx.AllocBuffer, self._allocate),
            (tirx.Evaluate, lambda _node, _visitor: None),
            (TensorLoad, self._load),
            (Call, self._call),
        ]
        structural_visit(node, callbacks)

    def _loop(self, node: Any, visitor: Any) -> None:
        before = self._executions
        self._executions *= int(node.extent) if isinstance(node.extent, tirx.IntImm) else 1
        visitor.visit(node.body)
        self._executions = before

    def _branch(self, node: Any, visitor: Any) -> None:
        self._choose(node.condition, [node.then_case, node.else_case], visitor)

    def _call(self, node: Any, visitor: Any) -> None:
        if operator_name(node) != CONDITIONAL:
            visitor.default_visit(node)
            return
        condition, *values = node.args
        self._choose(condition, values, visitor)

    def _choose(self, condition: Any, guarded: Sequence[Any], visitor: Any) -> None:
        self.comparisons += self._executions * _comparisons(condition)
        visitor.visit(condition)
        self._guards += 1
        for part in guarded:
            visitor.visit(part)
        self._guards -= 1

    def _store(self, node: Any, visitor: Any) -> None:
        visitor.visit(node.value)
        self.stores += self._executions * _is_global(node.buffer)

    def _bind(self, node: Any, visitor: Any) -> None:
        visitor.visit(node.value)
        self._known[node.var] = evaluated(node.value, self._known)

    def _allocate(self, node: Any, _visitor: Any) -> None:
        if node.buffer.scope().startswith("shared"):
            self.shared_bytes += _bytes(node.buffer)

    def _load(self, node: Any, _visitor: Any) -> None:
        if _is_global(node.source):
            loads, sectors = self._touched(node)
            self.loads += self._executions * loads
            self.guarded += self._executions * loads * (self._guards > 0)
            self.sectors += self._executions * sectors

    def _touched(self, load: Any) -> tuple[int, int]:
        """The loads that an access becomes, and the sectors that the first warp of the first block
        touches by them: a vector is one load where its elements lie side by side, else one each."""
        (index,) = load.indices
        kind = tvm.DataType(str(load.ty.dtype))
        places = [evaluated(index, self._known, lane) for lane in range(kind.lanes)]
        elements = np.stack([np.broadcast_to(place, _WARP) for place in places])
        sectors = elements * kind.bits // 8 // _SECTOR_BYTES
        if (np.diff(elements, axis=0) == 1).all():
            return 1, len(np.unique(sectors))
        return kind.lanes, sum(len(np.unique(lane)) for lane in sectors)

    def _warp(self) -> dict[Any, Values]:
        """The thread indices of the first warp's lanes; those of a small block repeat."""
        x, y, z = self.sizes("threadIdx")
        lanes = np.arange(_WARP) % (x * y * z)
        at = {
            "threadIdx.x": lanes % x,
            "threadIdx.y": lanes // x % y,
            "threadIdx.z": lanes // x // y,
        }
        return {variable: at[tag] for variable, (tag, _) in self._axes.items() if tag in at}


def _comparisons(condition: Any) -> int:
    """How many comparisons a condition makes, of a vector as of one element."""
    found: list[Any] = []

    def compare(node: Any, visitor: Any) -> None:
        found.append(node)
        visitor.default_visit(node)

    structural_visit(condition, [(TensorLoad, lambda _n, _v: None), (_COMPARING, compare)])
    return len(found)


def _is_global(buffer: Any) -> bool:
    return str(buffer.scope()) in ("global", "")


def _bytes(buffer: Any) -> int:
    kind = tvm.DataType(str(buffer.dtype))
    return prod(map(int, buffer.shape)) * kind.bits * kind.lanes // 8


def cuda_code(
    workload: Workload,
    candidate: Candidate,
    target: Target,
    resources: Resources,
    *,
    compiled: bool,
) -> CudaCode:
    """A candidate's kernels for a GPU.

    Where it is to be `compiled`, NVIDIA's compiler makes a cubin and reports registers and spills;
    why it could not is the code's `reason`.
    """
    program, schedule = lowered(workload, candidate, target, resources)
    tvm_target = tvm.target.Target(target.tvm_target(resources))
    _, device_module, finish = split(schedule.mod, tvm_target)
    known = {
        "rule": program.rule or candidate.implementation,
        "kernels": tuple(
            read_launch(variable.name_hint, function)
            for variable, function in device_module.functions.items()
        ),
    }
    if not compiled:
        return CudaCode(source="", reason="it was not compiled", **known)
    source = str(codegen_build(finish(device_module), tvm_target).inspect_source())
    done = compiled_source(source, target.architecture)
    known["kernels"] = tuple(
        replace(kernel, report=done.reports.get(kernel.name)) for kernel in known["kernels"]
    )
    return CudaCode(source=source, binary=done.binary, reason=done.reason, **known)

"""Walks a scheduled function and describes its statements as loop nests.

What an index does along a loop is found by evaluating it for all values of that loop's variable,
the others at 0, so that fused and split loops need no rules of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize, Schedule
from tvm_ffi import structural_visit, structural_walk

from tilewright.compiler.features.kinds import (
    LOOP_KINDS,
    Floats,
    Loop,
    Nest,
    Touch,
    curve_features,
    itervar_features,
    reduced,
)

_MOST_SAMPLES = 4096
"""Longer loops are evaluated so far, and the rest is taken to be alike."""
_KINDS = dict(
    zip(
        (
            tirx.ForKind.SERIAL,
            tirx.ForKind.PARALLEL,
            tirx.ForKind.VECTORIZED,
            tirx.ForKind.UNROLLED,
            tirx.ForKind.THREAD_BINDING,
        ),
        LOOP_KINDS,
        strict=True,
    )
)
_CLASSES: dict[type, int] = {
    tirx.Add: 0, tirx.Sub: 0, tirx.Mul: 1, tirx.Div: 2, tirx.Mod: 2, tirx.FloorDiv: 2,
    tirx.FloorMod: 2, tirx.Min: 3, tirx.Max: 3, tirx.EQ: 3, tirx.NE: 3, tirx.LT: 3, tirx.LE: 3,
    tirx.GT: 3, tirx.GE: 3, tirx.Select: 3, tirx.BitwiseAnd: 3, tirx.BitwiseOr: 3,
    tirx.BitwiseXor: 3, tirx.LShift: 3, tirx.RShift: 3,
}  # fmt: skip
_BINARY: dict[type, Callable[..., Any]] = {
    tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply, tirx.Min: np.minimum,
    tirx.Max: np.maximum, tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.mod,
    tirx.Div: np.floor_divide, tirx.Mod: np.mod, tirx.EQ: np.equal, tirx.NE: np.not_equal,
    tirx.LT: np.less, tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal,
    tirx.And: np.logical_and, tirx.Or: np.logical_or, tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or, tirx.BitwiseXor: np.bitwise_xor, tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
}  # fmt: skip
CONDITIONAL = "prim.if_then_else"
Index = npt.NDArray[np.int64]
Binding = tuple[Any, Any]


def loop_nests(function: tirx.PrimFunc) -> list[Nest]:
    """The statements of a function in the order they appear in.

    The start value of a reduction that has no loops of its own yet is left out.
    """
    walk = _Walk()
    walk.visit(function.body)
    return walk.nests


class _Walk:
    """Loops, bindings and views around the statement that is visited."""

    def __init__(self) -> None:
        self.nests: list[Nest] = []
        self._count = 0
        self._loops: list[tuple[Any, Loop]] = []
        self._bindings: list[Binding] = []
        self._views: dict[Any, tuple[Any, list[Any]]] = {}

    def visit(self, body: Any) -> None:
        """Visit a statement and what is in it."""
        callbacks = [
            (tirx.For, self._for),
            (SBlockRealize, self._block),
            (tirx.BufferStore, lambda store, _: self._statement(store.value, store)),
            (tirx.Evaluate, self._evaluate),
            (tirx.Bind, lambda bind, _: self._bindings.append((bind.var, bind.value))),
        ]
        structural_visit(body, callbacks)

    def _for(self, node: Any, visitor: Any) -> None:
        loop = Loop(
            number=self._count,
            extent=int(node.extent) if isinstance(node.extent, tirx.IntImm) else 1,
            kind=_KINDS[tirx.ForKind(node.kind)],
        )
        self._count += 1
        self._loops.append((node.loop_var, loop))
        visitor.visit(node.body)
        self._loops.pop()

    def _block(self, node: Any, visitor: Any) -> None:
        block, known = node.block, len(self._bindings)
        self._bindings += zip((a.var for a in block.iter_vars), node.iter_values, strict=True)
        for match in block.match_buffers:
            starts = [part.min for part in match.source.region]
            self._views[match.buffer] = (match.source.source, starts)
        visitor.visit(block.body)
        del self._bindings[known:]

    def _evaluate(self, node: Any, _visitor: Any) -> None:
        if not isinstance(node.value, tirx.IntImm):
            self._statement(node.value, None)

    def _statement(self, value: Any, store: Any) -> None:
        arithmetic, loads = _scanned(value)
        points = _Points(self._loops, self._bindings)
        found: dict[bytes, tuple[float, bool, Index]] = {}
        accesses = [(store.buffer, store.indices, True)] if store is not None else []
        accesses += [(load.source, load.indices, False) for load in loads]
        for reached, indices, written in accesses:
            buffer, index = self._place(reached, indices, points)
            identity = repr(hash(buffer)).encode() + (index - index[:1]).tobytes()
            size = tvm.DataType(str(buffer.dtype)).bits / 8 * _lanes(indices)
            found.setdefault(identity, (size, written, index))
        self.nests.append(
            Nest(
                loops=tuple(loop for _, loop in self._loops),
                touches=tuple(points.touch(*access) for access in found.values()),
                arithmetic=arithmetic,
            )
        )

    def _place(self, buffer: Any, indices: Sequence[Any], points: _Points) -> tuple[Any, Index]:
        """The buffer that has memory of its own, and the flat index there at all points."""
        index = points.flat(buffer, indices)
        while buffer in self._views:
            buffer, starts = self._views[buffer]
            index = index + points.flat(buffer, starts)
        return buffer, index


class _Points:
    """Values of loop variables: each loop's in turn, the others at 0."""

    def __init__(self, loops: Sequence[tuple[Any, Loop]], bindings: Sequence[Binding]) -> None:
        self._loops = [loop for _, loop in loops]
        sizes = [min(max(1, loop.extent), _MOST_SAMPLES) for loop in self._loops]
        self._starts = np.cumsum([0, *sizes])
        self._size = max(1, int(self._starts[-1]))
        self._known: dict[Any, Any] = {}
        for (variable, _), start, size in zip(loops, self._starts, sizes, strict=False):
            values = np.zeros(self._size, dtype=np.int64)
            values[start : start + size] = np.arange(size)
            self._known[variable] = values
        for variable, value in bindings:
            self._known[variable] = evaluated(value, self._known)

    def flat(self, buffer: Any, indices: Sequence[Any]) -> Index:
        """The row-major index of an element at all points."""
        place = np.zeros(self._size, dtype=np.int64)
        for extent, index in zip(buffer.shape, indices, strict=True):
            size = int(extent) if isinstance(extent, tirx.IntImm) else 1
            place = place * size + evaluated(index, self._known)
        return place

    def touch(self, element_bytes: float, written: bool, index: Index) -> Touch:
        """What an index does along each loop."""
        patterns = [
            _pattern(index[start:stop], loop.extent)
            for loop, start, stop in zip(self._loops, self._starts, self._starts[1:], strict=False)
        ]
        strides, runs, distinct = zip(*patterns, strict=True) if patterns else ((), (), ())
        return Touch(
            element_bytes=element_bytes,
            written=written,
            strides=strides,
            runs=runs,
            distinct=distinct,
        )


def _pattern(index: Index, extent: int) -> tuple[int, int, float]:
    """Stride, run and distinct elements of a loop, from the indices along it."""
    steps = np.diff(index)
    moving = steps[steps != 0]
    changes = np.flatnonzero(steps != steps[0]) if len(steps) else steps
    scale = extent / len(index)
    return (
        int(moving[0]) if len(moving) else 0,
        int(changes[0]) + 1 if len(changes) else extent,
        len(np.unique(index)) * (scale if len(moving) else 1.0),
    )


def _lanes(indices: Sequence[Any]) -> int:
    """Elements that one access reaches."""
    return prod(int(index.lanes) for index in indices if isinstance(index, tirx.Ramp))


def _scanned(value: Any) -> tuple[tuple[int, int, int, int], list[Any]]:
    """The operations of a value by class, and its loads; what only finds an index counts for
    nothing, but for loads."""
    counts, loads = Counter[int](), []

    def load(node: Any, _visitor: Any) -> None:
        structural_walk(node, (TensorLoad, loads.append), order="pre")

    def operation(node: Any, visitor: Any) -> None:
        kind = type(node)
        if kind in _CLASSES or operator_name(node):
            counts[_CLASSES.get(kind, 3)] += 1
        visitor.default_visit(node)

    structural_visit(value, [(TensorLoad, load), (tirx.Expr, operation)])
    return (counts[0], counts[1], counts[2], counts[3]), loads


def operator_name(node: Any) -> str:
    """The name of the operator a call calls, empty for everything else."""
    return str(getattr(getattr(node, "op", None), "name", ""))


def evaluated(node: Any, known: Mapping[Any, Any], lane: int = 0) -> Any:
    """An index expression at the points for which `known` has the values of variables; others, and
    what is read from memory, count as 0. Of a vector the element `lane`."""
    match node:
        case tirx.IntImm():
            return int(node.value)
        case tirx.Var():
            return known.get(node, 0)
        case _ if type(node) in _BINARY:
            parts = (evaluated(part, known, lane) for part in (node.a, node.b))
            return _BINARY[type(node)](*parts)
        case tirx.Cast() | tirx.Broadcast():
            return evaluated(node.value, known, lane)
        case tirx.Not():
            return np.logical_not(evaluated(node.a, known, lane))
        case tirx.Ramp():
            first = evaluated(node.base, known, lane)
            return first + lane * evaluated(node.stride, known, lane) if lane else first
        case tirx.Select():
            parts = (node.condition, node.true_value, node.false_value)
            return np.where(*(evaluated(part, known, lane) for part in parts))
        case _ if operator_name(node) == CONDITIONAL:
            return np.where(*(evaluated(part, known, lane) for part in node.args))
        case _:
            return 0


def kernel_features(module: Any, target: str, kind: str) -> Floats:
    """The features of a scheduled module whose function is `main`.

    KeyError for an unknown kind.
    """
    if kind == "store":
        return store_features(module, target)
    return {"itervar": itervar_features, "curve": curve_features}[kind](loop_nests(module["main"]))


def store_features(module: Any, target: str) -> Floats:
    """One row: how many buffers are stored to, sums over them, and the one with most work."""
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule import _ffi_api

    # not ms.TuneContext(...): that imports the instructions of all devices, ten seconds and more
    context = _ffi_api.TuneContext(
        module, tvm.target.Target(target), None, None, "features", 1, 1, None
    )
    candidate = ms.MeasureCandidate(Schedule(module), [])
    (rows,) = ms.feature_extractor.PerStoreFeature().extract_from(context, [candidate])
    return reduced(rows.numpy().astype(np.float64))

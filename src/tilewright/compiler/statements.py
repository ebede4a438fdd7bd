"""Statements of TIR: what is in them, and putting other parts in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize

_BINARY: tuple[type, ...] = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min,
    tirx.Max, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or,
    tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift,
)  # fmt: skip


def children(node: Any) -> Iterator[Any]:
    """The statements in a statement."""
    if isinstance(node, tirx.SeqStmt):
        yield from node.seq
    elif isinstance(node, tirx.IfThenElse):
        yield node.then_case
        if node.else_case is not None:
            yield node.else_case
    elif isinstance(node, SBlockRealize):
        yield node.block
    elif isinstance(node, SBlock) or hasattr(node, "body"):
        yield node.body


def operands(node: Any) -> Iterator[Any]:
    """The expressions in an expression, but for the indices of loads."""
    if type(node) in _BINARY:
        yield node.a
        yield node.b
    elif isinstance(node, tirx.Select):
        yield from (node.condition, node.true_value, node.false_value)
    elif isinstance(node, tirx.Let):
        yield from (node.value, node.body)
    elif isinstance(node, (tirx.Cast, tirx.Broadcast)):
        yield node.value
    elif isinstance(node, tirx.Not):
        yield node.a
    elif operator_name(node):
        yield from (a for a in node.args if isinstance(a, tirx.Expr))


def operator_name(node: Any) -> str:
    """The name of the operator a call calls, empty for everything else."""
    return str(getattr(getattr(node, "op", None), "name", ""))


def loads(node: Any) -> Iterator[TensorLoad]:
    """What an expression reads from memory, but for what its indices read."""
    if isinstance(node, TensorLoad):
        yield node
    for operand in operands(node):
        yield from loads(operand)


def with_parts(node: Any, change: Callable[[Any], Any]) -> Any:
    """The statement with `change` applied to the statements in it, itself where nothing changes."""
    parts = list(children(node))
    changed = [change(part) for part in parts]
    if all(new.same_as(old) for new, old in zip(changed, parts, strict=True)):
        return node
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt(changed)
    if isinstance(node, tirx.IfThenElse):
        return tirx.IfThenElse(node.condition, *changed)
    if isinstance(node, tirx.For):
        return with_body(node, changed[0], node.annotations)
    if isinstance(node, tirx.AttrStmt):
        return tirx.AttrStmt(node.node, node.attr_key, node.value, changed[0])
    if isinstance(node, SBlockRealize):
        return SBlockRealize(node.iter_values, node.predicate, changed[0])
    assert isinstance(node, SBlock), type(node)
    return SBlock(
        node.iter_vars,
        node.reads,
        node.writes,
        node.name_hint,
        changed[0],
        node.init,
        node.alloc_buffers,
        node.match_buffers,
        node.annotations,
    )


def with_body(loop: tirx.For, body: Any, annotations: Any) -> tirx.For:
    """The same loop over another body, with other annotations."""
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, annotations
    )

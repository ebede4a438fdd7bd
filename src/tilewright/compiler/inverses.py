"""1 / x of a constant as an operator of its own, computed in front of the outermost loop.

Where a result takes the place of what a kernel reads, LLVM has to assume that a store changes the
divisor as well, and divides anew for every vector. A kernel says only that it wants an `inverse`;
once its loops are vectors, `with_inverses_ahead` divides in front of them.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad
from tvm.ir.op import register_op_attr
from tvm_ffi import structural_map, structural_mutate

_NAME = "tirx.tilewright_inverse"
_PURE = 1
register_op_attr(_NAME, "TVectorizable", True)
register_op_attr(_NAME, "TCallEffectKind", _PURE)
register_op_attr(_NAME, "TScriptPrinterName", "tilewright_inverse")
_OPERATOR = Op.get(_NAME)


def inverse(x: tirx.Expr) -> tirx.Expr:
    """1 / x of an element of a constant."""
    return Call(_OPERATOR, [x], ret_ty=str(x.ty.dtype))


def _divided(call: Any) -> tirx.Expr:
    return tirx.const(1, str(call.ty.dtype)) / call.args[0]


tirx.register_intrin_lowering(_NAME, "default", f=_divided)


@tirx.transform.prim_func_pass(opt_level=0)
def with_inverses_ahead(
    function: tirx.PrimFunc, _module: tvm.IRModule, _context: Any
) -> tirx.PrimFunc:
    """The function with inverses of single numbers at the beginning of its outermost loops."""
    return function.with_body(structural_mutate(function.body, (tirx.For, _outermost)))


def _outermost(loop: Any, _mutator: Any) -> Any:
    ahead: dict[Any, Any] = {}

    def named(call: Any) -> Any:
        if call.op != _OPERATOR or not _single(call.args[0]):
            return call
        bound = tirx.Bind(tirx.Var("inverse", str(call.ty.dtype)), _divided(call))
        return ahead.setdefault(call.args[0].source, bound).var

    body = structural_map(loop.body, (Call, named))
    if not ahead:
        return loop
    whole = tirx.SeqStmt([*ahead.values(), body])
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, whole, loop.thread_binding,
        loop.annotations,
    )  # fmt: skip


def _single(value: Any) -> bool:
    """Whether this is the only element of a buffer."""
    return isinstance(value, TensorLoad) and [int(n) for n in value.source.shape] == [1]

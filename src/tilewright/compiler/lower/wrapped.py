"""Sums and products of whole numbers of 32 bits that keep their lowest 32 bits.

TVM tells LLVM that numbers of 32 bits never overflow, and LLVM may make anything of one that does.
Here they may: a result is known from its lowest bits. So a kernel asks for a `wrapped` operation,
which is LLVM's without that promise, and imports `wrapped_text`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.op import register_op_attr

_TEXT = """
define {kind} @tilewright_wrapped_{name}_{lanes}({kind} %a, {kind} %b) alwaysinline {{
  %found = {name} {kind} %a, %b
  ret {kind} %found
}}
"""
_NAMES = ("add", "mul")
_PURE = 1


def _operator(name: str) -> Any:
    whole = f"tirx.tilewright_wrapped_{name}"
    register_op_attr(whole, "TVectorizable", True)
    register_op_attr(whole, "TCallEffectKind", _PURE)
    register_op_attr(whole, "TScriptPrinterName", f"tilewright_wrapped_{name}")

    def lowered(call: Any) -> tirx.Expr:
        kind = str(call.ty.dtype)
        lanes = int(tvm.DataType(kind).lanes)
        return tirx.call_pure_extern(kind, f"tilewright_wrapped_{name}_{lanes}", *call.args)

    tirx.register_intrin_lowering(whole, "default", f=lowered)
    return Op.get(whole)


_ADD, _MUL = map(_operator, _NAMES)


def wrapped_sum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The lowest 32 bits of a + b, as `int32`."""
    return Call(_ADD, [a, b], ret_ty="int32")


def wrapped_product(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The lowest 32 bits of a b, as `int32`."""
    return Call(_MUL, [a, b], ret_ty="int32")


def wrapped_text(lanes: int) -> str:
    """LLVM's text of both, for vectors of so many lanes."""
    kind = "i32" if lanes == 1 else f"<{lanes} x i32>"
    return "".join(_TEXT.format(kind=kind, name=name, lanes=lanes) for name in _NAMES)

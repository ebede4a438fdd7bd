"""Rounding singles to 16 bits as an operator of its own, which becomes machine code last.

Processors with products of bfloat16 round a vector in one instruction, but TVM has no expression
for it, and makes several integer instructions of its own type. Therefore a kernel says only that it
rounds (`rounded`). Once its loops are vectors, `with_instructions` writes LLVM's conversion for
processors that have one; elsewhere TVM asks `_in_integers`. What is rounded to float16 is mentioned
twice, to keep it finite, and then TVM's own conversion is the processor's.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, Op, StringImm
from tvm.ir.op import register_op_attr
from tvm_ffi import structural_map

from tilewright.compiler.lower import bindings
from tilewright.hardware.target import target_architecture

_NAME = "tirx.tilewright_half"
_PURE = 1
_FEATURES = frozenset({"+avx512bf16", "+bf16"})
_TEXT = """
define {bits} @tilewright_half_{lanes}({single} %x) alwaysinline {{
  %half = fptrunc {single} %x to {half}
  %bits = bitcast {half} %half to {bits}
  ret {bits} %bits
}}
"""
_INFINITE = 0x7F800000
_FLOAT16_LARGEST, _FLOAT16_INFINITE = 0x477FE000, 0x477FF000
"""The bits of the largest number in float16, and of the least single that is rounded beyond it."""
register_op_attr(_NAME, "TVectorizable", True)
register_op_attr(_NAME, "TCallEffectKind", _PURE)
register_op_attr(_NAME, "TScriptPrinterName", "tilewright_half")
_OPERATOR = Op.get(_NAME)


def rounded(x: tirx.Expr, kind: str = "uint16") -> tirx.Expr:
    """A single rounded to the nearest, ties to even: its upper half, as bits, or in `float16`. What
    is finite stays so, a NaN stays one; a number below the normal ones of bfloat16 may become
    zero."""
    return Call(_OPERATOR, [x], ret_ty=kind)


def _bits(value: int) -> tirx.Expr:
    return tirx.const(value, "uint32")


def _vector(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"{kind}x{lanes}"


def _lanes(call: Any) -> int:
    return int(tvm.DataType(str(call.ty.dtype)).lanes)


def _finite(bits: tirx.Expr, lanes: int) -> tirx.Expr:
    """Finite numbers that would be rounded to infinity lose their lower half; others stay."""
    size = bits & _bits(0x7FFF8000)
    beyond = _bits(0x7F7F8000) if lanes == 1 else tirx.Broadcast(_bits(0x7F7F8000), lanes)
    return tirx.Select(tirx.EQ(size, beyond), bits & _bits(0xFFFF0000), bits)


def _of_bits(whole: tirx.Var, single: tirx.Expr, half: tirx.Expr) -> tirx.Expr:
    """`half` where `whole` are the bits of `single`. What that binds is bound around both: TVM
    simplifies the value of a binding, and refuses names in it that it meets again later."""
    bits = str(whole.ty.dtype)
    return bindings.bound(
        lambda: tirx.Let(whole, tirx.reinterpret(bits, bindings.opened(single)), half)
    )


def _lowered(call: Any) -> tirx.Expr:
    """Rounding to either type."""
    return _in_integers(call) if _to_bits(call) else _to_float16(call)


def _to_bits(call: Any) -> bool:
    return str(call.ty.dtype).startswith("uint16")


def _to_float16(call: Any) -> tirx.Expr:
    """Finite numbers that would be rounded to infinity become the largest ones; TVM converts."""
    lanes = _lanes(call)

    def all_of(value: int) -> tirx.Expr:
        return _bits(value) if lanes == 1 else tirx.Broadcast(_bits(value), lanes)

    whole = tirx.Var("whole", _vector("uint32", lanes))
    size = whole & _bits(0x7FFFFFFF)
    beyond = tirx.And(size >= all_of(_FLOAT16_INFINITE), size < all_of(_INFINITE))
    largest = (whole & _bits(0x80000000)) | _bits(_FLOAT16_LARGEST)
    single = tirx.reinterpret(str(call.args[0].ty.dtype), tirx.Select(beyond, largest, whole))
    half = tirx.Cast(str(call.ty.dtype), single)
    return _of_bits(whole, call.args[0], half)


def _in_integers(call: Any) -> tirx.Expr:
    """Rounding to bfloat16 by the rule of the definition."""
    lanes = _lanes(call)
    whole, found = (tirx.Var(name, _vector("uint32", lanes)) for name in ("whole", "found"))
    nearest = (found + _bits(0x7FFF) + ((found >> _bits(16)) & _bits(1))) >> _bits(16)
    nan = (found & _bits(0x7FFFFFFF)) > _bits(0x7F800000)
    half = tirx.Select(nan, (found >> _bits(16)) | _bits(0x40), nearest)
    half = tirx.Let(found, _finite(whole, lanes), tirx.Cast(_vector("uint16", lanes), half))
    return _of_bits(whole, call.args[0], half)


tirx.register_intrin_lowering(_NAME, "default", f=_lowered)


def _converted(call: Any) -> tirx.Expr:
    """Rounding by the processor's conversion, which takes the largest numbers to infinity."""
    lanes = _lanes(call)
    whole = tirx.Var("whole", _vector("uint32", lanes))
    single = tirx.reinterpret(_vector("float32", lanes), _finite(whole, lanes))
    name = f"tilewright_half_{lanes}"
    half = tirx.call_pure_extern(_vector("uint16", lanes), name, single)
    return _of_bits(whole, call.args[0], half)


@tirx.transform.prim_func_pass(opt_level=0)
def with_instructions(
    function: tirx.PrimFunc, _module: tvm.IRModule, _context: Any
) -> tirx.PrimFunc:
    """The function with the processor's conversion where it has one."""
    target = function.attrs.get("target")
    if target is None or not _converts(target.attrs):
        return function
    widths: set[int] = set()

    def visit(call: Any) -> Any:
        if call.op != _OPERATOR or not _to_bits(call):
            return call
        widths.add(_lanes(call))
        return _converted(call)

    body = structural_map(function.body, (Call, visit))
    if not widths:
        return function
    text = "".join(map(_text, sorted(widths)))
    value = StringImm(text)
    return function.with_body(tirx.AttrStmt(value, "pragma_import_llvm", value, body))


def _converts(attributes: Any) -> bool:
    """Whether a target has the conversion, and LLVM makes it of vectors: on ARM of 32 bits it does
    not."""
    architecture = target_architecture({"mtriple": attributes.get("mtriple", "")})
    return not architecture.startswith("arm") and not _FEATURES.isdisjoint(
        attributes.get("mattr", ())
    )


def _text(lanes: int) -> str:
    """LLVM's text of the conversion of so many numbers."""
    single, half, bits = (
        kind if lanes == 1 else f"<{lanes} x {kind}>" for kind in ("float", "bfloat", "i16")
    )
    return _TEXT.format(lanes=lanes, single=single, half=half, bits=bits)

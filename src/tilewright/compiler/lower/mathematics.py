"""Transcendental functions as polynomials, so that they run in vector lanes.

LLVM calls the scalar library once per lane for exp, tanh and erf. Single precision only; other
types use the compiler's intrinsics. NaN stays NaN and infinities come out as in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from tvm import tirx
from tvm.ir import Call, Op

from tilewright.compiler.lower import bindings, rounding
from tilewright.core.element_types import element_type
from tilewright.kernels.base import HALF, HALVES

Unary = Callable[[tirx.Expr], tirx.Expr]
_REINTERPRET, _CHOICE = Op.get("tirx.reinterpret"), Op.get("prim.if_then_else")
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_EXP_OVERFLOW = 88.72283
_LOWEST = -87.0
_EXP_UNDERFLOW = -87.33654
_EXP = (
    1.394138847e-3, 8.375350596e-3, 4.166634952e-2, 1.666641281e-1, 5.000000048e-1, 1.0, 1.0,
)  # fmt: skip
_TANH = (
    (1.338335752e-8, 2.062568306e-5, 3.496506431e-3, 1.338177922e-1, 1.0),
    (7.786852118e-7, 3.287190777e-4, 2.588041152e-2, 4.671509491e-1, 1.0),
)
_ERF = (
    (
        1.987967790e-6, 2.846068788e-4, 3.882694226e-3, 5.310036767e-2, 1.935242636e-1,
        1.128379139,
    ),
    (3.743341694e-5, 1.185500685e-3, 1.520607314e-2, 1.153426291e-1, 5.048389700e-1, 1.0),
)  # fmt: skip
"""Of the highest power first; of fractions, what is above and what is below."""


def dtype(x: tirx.Expr) -> str:
    """The element type of an expression."""
    return str(x.ty.dtype)


def converted(x: tirx.Expr, kind: str) -> tirx.Expr:
    """`x` in another element type.

    From and to bfloat16 by way of single precision: TVM would repeat the whole expression, and
    refuses expressions that bind values.
    """
    source = dtype(x)
    if source == kind:
        return x
    if kind == "bfloat16":
        return bindings.shared(x if source == "float32" else tirx.Cast("float32", x), _to_bfloat16)
    if source != "bfloat16":
        return tirx.Cast(kind, x)
    single = _from_bfloat16(x)
    return single if kind == "float32" else tirx.Cast(kind, single)


def _to_bfloat16(x: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret("bfloat16", tirx.Cast("uint16", _upper_half(x)))


def _upper_half(x: tirx.Expr) -> tirx.Expr:
    """The bits of a single rounded to bfloat16, ties to even; a NaN stays one."""
    bits = tirx.reinterpret("uint32", x)
    last = (bits >> _bits(16)) & _bits(1)
    nearest = (bits + _bits(0x7FFF) + last) >> _bits(16)
    return tirx.Select(tirx.isnan(x), _bits(0x7FC0), nearest)


def nearest_half(x: tirx.Expr) -> tirx.Expr:
    """The upper half of a single, rounded as the processor does: what is beyond the largest half
    becomes infinite. `x` is mentioned several times."""
    return tirx.Cast("uint16", _upper_half(x))


def half(x: tirx.Expr) -> tirx.Expr:
    """The upper half of a single, rounded, finite where the single is; of a single that was widened
    it is what was there."""
    if isinstance(x, Call) and x.op == _REINTERPRET and isinstance(x.args[0], tirx.LShift):
        widened = x.args[0].a
        if isinstance(widened, tirx.Cast) and dtype(widened.value) == "uint16":
            return widened.value
    return rounding.rounded(x)


def in_half(x: tirx.Expr, kind: str | None) -> tirx.Expr:
    """What is stored where a form has this element type: of a half type a single is rounded, finite
    where it is, and one that was widened is what was there."""
    if kind is None or kind not in HALVES:
        return x
    if kind == HALF:
        return half(x)
    if isinstance(x, tirx.Cast) and dtype(x.value) == kind:
        return x.value
    return rounding.rounded(x, kind)


def out_of_half(stored: tirx.Expr, kind: str | None) -> tirx.Expr:
    """What is stored where a form has this element type as it is computed with: halves are
    widened."""
    if kind is None or kind not in HALVES:
        return stored
    return (
        of_upper_half(stored) if kind == HALF else tirx.Cast(element_type(kind).accumulator, stored)
    )


def of_upper_half(upper: tirx.Expr) -> tirx.Expr:
    """The single whose upper half has these bits, the lower one none."""
    return tirx.reinterpret("float32", tirx.Cast("uint32", upper) << _bits(16))


def _from_bfloat16(x: tirx.Expr) -> tirx.Expr:
    """A single with these bits in its upper half. There and back again is a rounding in single, and
    a choice is made between singles: TVM reinterprets neither rightly."""
    if not bindings.is_open():
        return bindings.bound(lambda: _from_bfloat16(x))
    x = bindings.opened(x)
    if isinstance(x, tirx.FloatImm):
        return _f(x.value)
    if isinstance(x, Call) and x.op == _CHOICE:
        condition, yes, no = x.args
        return tirx.if_then_else(condition, _alone(yes), _alone(no))
    rounded = isinstance(x, Call) and x.op == _REINTERPRET
    upper = x.args[0].value if rounded else tirx.Cast("uint32", tirx.reinterpret("uint16", x))
    return tirx.reinterpret("float32", upper << _bits(16))


def _alone(x: tirx.Expr) -> tirx.Expr:
    """One side of a choice: what it binds stays on this side, where it may be read."""
    return bindings.bound(lambda: _from_bfloat16(x))


def _bits(value: int) -> tirx.Expr:
    return tirx.const(value, "uint32")


def _f(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def _horner(x: tirx.Expr, coefficients: tuple[float, ...]) -> tirx.Expr:
    """Evaluate a polynomial, highest power first."""
    result = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _f(coefficient)
    return result


def _for_singles(intrinsic: Unary) -> Callable[[Unary], Unary]:
    """What computes singles, each bound to a name; the compiler's own function for other types."""

    def chosen(singles: Unary) -> Unary:
        @wraps(singles)
        def function(x: tirx.Expr) -> tirx.Expr:
            return bindings.shared(x, singles) if dtype(x) == "float32" else intrinsic(x)

        return function

    return chosen


@_for_singles(tirx.exp)
def exp(x: tirx.Expr) -> tirx.Expr:
    """e**x: infinite beyond the largest single, 0 where normal numbers end."""
    inside = tirx.Select(x <= _f(_EXP_OVERFLOW), _power(x), x + _f(float("inf")))
    return tirx.Select(x < _f(_EXP_UNDERFLOW), _f(0.0), inside)


def exp_below_one(x: tirx.Expr) -> tirx.Expr:
    """e**x of a single that is not above 0: below -87, where normal numbers end, it is 0."""

    def inside(v: tirx.Expr) -> tirx.Expr:
        return tirx.Select(v >= _f(_LOWEST), _power(v), tirx.max(_f(0.0), v))

    return bindings.shared(x, inside)


def _power(x: tirx.Expr) -> tirx.Expr:
    """e**x where that is a normal number: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of
    degree 6 in r, and n added to its exponent. Elsewhere anything: a NaN makes no integer n."""

    def scaled(n: tirx.Expr) -> tirx.Expr:
        rest = x - n * _f(_LN2_HIGH) - n * _f(_LN2_LOW)
        power = bindings.shared(rest, lambda r: _horner(r, _EXP))
        bits = tirx.reinterpret("int32", power)
        exponent = tirx.Cast("int32", n) << tirx.const(23, "int32")
        return tirx.reinterpret("float32", bits + exponent)

    return bindings.shared(tirx.floor(x * _f(_LOG2_E) + _f(0.5)), scaled)


def expm1(x: tirx.Expr) -> tirx.Expr:
    """e**x - 1, a Taylor polynomial near zero."""
    if dtype(x) != "float32":
        return tirx.exp(x) - tirx.const(1, dtype(x))
    taylor = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0)
    return bindings.shared(
        x,
        lambda v: tirx.Select(tirx.abs(v) < _f(0.25), v * _horner(v, taylor), exp(v) - _f(1.0)),
    )


_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_SMALLEST_NORMAL = 1.1754943508222875e-38


@_for_singles(tirx.log)
def log(x: tirx.Expr) -> tirx.Expr:
    """Natural logarithm: x = 2**e m with m near one, then the polynomial of Cephes' logf in m."""
    tiny = x < _f(_SMALLEST_NORMAL)
    normal = tirx.Select(tiny, x * _f(2.0**23), x)
    shift = tirx.Select(tiny, _f(149.0), _f(126.0))
    value = bindings.shared(
        tirx.reinterpret("int32", normal), lambda bits: _log_of_bits(bits, shift)
    )
    not_finite = tirx.Select(x > _f(3.4028234e38), x, value)
    positive = tirx.Select(x > _f(0.0), not_finite, _f(float("nan")))
    return tirx.Select(tirx.EQ(x, _f(0.0)), _f(float("-inf")), positive)


def _log_of_bits(bits: tirx.Expr, shift: tirx.Expr) -> tirx.Expr:
    fraction, half, width = (tirx.const(value, "int32") for value in (0x7FFFFF, 0x3F000000, 23))
    mantissa = tirx.reinterpret("float32", (bits & fraction) | half)
    exponent = tirx.Cast("float32", bits >> width) - shift

    def series(m: tirx.Expr, e: tirx.Expr) -> tirx.Expr:
        square = m * m
        tail = _horner(m, _LOG) * m * square + e * _f(_LN2_LOW) - _f(0.5) * square
        return m + tail + e * _f(_LN2_HIGH)

    def centred(m: tirx.Expr) -> tirx.Expr:
        low = m < _f(0.70710678)
        e = tirx.Select(low, exponent - _f(1.0), exponent)
        return bindings.shared(
            tirx.Select(low, m + m, m) - _f(1.0),
            lambda c: bindings.shared(e, lambda k: series(c, k)),
        )

    return bindings.shared(mantissa, centred)


def sigmoid(x: tirx.Expr) -> tirx.Expr:
    """1 / (1 + e**-x)."""
    one = tirx.const(1, dtype(x))
    return one / (one + exp(tirx.const(0, dtype(x)) - x))


@_for_singles(tirx.tanh)
def tanh(x: tirx.Expr) -> tirx.Expr:
    """An odd rational function up to 9, from where on the result is one."""
    return _odd(x, 9.0, *_TANH)


@_for_singles(tirx.erf)
def erf(x: tirx.Expr) -> tirx.Expr:
    """An odd rational function up to 4, from where on the result is one."""
    return _odd(x, 4.0, *_ERF)


def _odd(
    x: tirx.Expr, reach: float, above: tuple[float, ...], below: tuple[float, ...]
) -> tirx.Expr:
    """x P(x²) / Q(x²) of x kept within ±`reach`, the result within ±1. Exactly one is reached: the
    coefficients have the least largest relative error of a function that is 3e-7 higher there.
    In this order of operands a NaN stays one."""

    def ratio(v: tirx.Expr) -> tirx.Expr:
        return bindings.shared(v * v, lambda s: v * _horner(s, above) / _horner(s, below))

    inside = tirx.min(_f(reach), tirx.max(_f(-reach), x))
    return tirx.min(_f(1.0), tirx.max(_f(-1.0), bindings.shared(inside, ratio)))

"""Transcendental functions as polynomials, so that they run in vector lanes.

LLVM calls the scalar library once per lane for exp, tanh and erf. Single precision only; other
types use the compiler's intrinsics. NaN stays NaN and infinities come out as in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps

from tvm import tirx
from tvm.ir import Call, Op

Unary = Callable[[tirx.Expr], tirx.Expr]
Bindings = list[tuple[tirx.Var, tirx.Expr]]
_BINDINGS: ContextVar[Bindings | None] = ContextVar("_BINDINGS", default=None)
_REINTERPRET, _CHOICE = Op.get("tirx.reinterpret"), Op.get("prim.if_then_else")
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_EXP_OVERFLOW = 88.72283
_LOWEST = -87.0
_EXP_UNDERFLOW = -87.33654


def dtype(x: tirx.Expr) -> str:
    """The element type of an expression."""
    return str(x.ty.dtype)


def bound(build: Callable[[], tirx.Expr]) -> tirx.Expr:
    """What `build` makes, with all values it shares bound around the whole, innermost last.

    let b = (let a = v in f(a)) in g(b)  -->  let a = v in let b = f(a) in g(b)

    Bindings nested inside the values of others would cost TVM's simplifier time that is
    exponential in the depth.
    """
    bindings: Bindings = []
    token = _BINDINGS.set(bindings)
    try:
        result = build()
    finally:
        _BINDINGS.reset(token)
    for name, value in reversed(bindings):
        result = tirx.Let(name, value, result)
    return result


def opened(x: tirx.Expr) -> tirx.Expr:
    """`x` with the bindings around it moved to the enclosing `bound`."""
    bindings = _BINDINGS.get()
    while bindings is not None and isinstance(x, tirx.Let):
        bindings.append((x.var, x.value))
        x = x.body
    return x


def shared(x: tirx.Expr, body: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """`body(x)` with x computed once, however often `body` uses it."""
    bindings = _BINDINGS.get()
    if bindings is None:
        return bound(lambda: shared(x, body))
    value = opened(x)
    if isinstance(value, (tirx.Var, tirx.IntImm, tirx.FloatImm)):
        return body(value)
    name = tirx.Var("shared", dtype(value))
    bindings.append((name, value))
    return body(name)


def converted(x: tirx.Expr, kind: str) -> tirx.Expr:
    """`x` in another element type.

    From and to bfloat16 by way of single precision: TVM would repeat the whole expression, and
    refuses expressions that bind values.
    """
    source = dtype(x)
    if source == kind:
        return x
    if kind == "bfloat16":
        return shared(x if source == "float32" else tirx.Cast("float32", x), _to_bfloat16)
    if source != "bfloat16":
        return tirx.Cast(kind, x)
    single = _from_bfloat16(x)
    return single if kind == "float32" else tirx.Cast(kind, single)


def _to_bfloat16(x: tirx.Expr) -> tirx.Expr:
    """The upper half of a single, rounded to the nearest, ties to even; a NaN stays one."""
    bits = tirx.reinterpret("uint32", x)
    last = (bits >> _bits(16)) & _bits(1)
    nearest = (bits + _bits(0x7FFF) + last) >> _bits(16)
    upper = tirx.Select(tirx.isnan(x), _bits(0x7FC0), nearest)
    return tirx.reinterpret("bfloat16", tirx.Cast("uint16", upper))


def _from_bfloat16(x: tirx.Expr) -> tirx.Expr:
    """A single with these bits in its upper half. There and back again is a rounding in single, and
    a choice is made between singles: TVM reinterprets neither rightly."""
    if _BINDINGS.get() is None:
        return bound(lambda: _from_bfloat16(x))
    x = opened(x)
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
    return bound(lambda: _from_bfloat16(x))


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
            return shared(x, singles) if dtype(x) == "float32" else intrinsic(x)

        return function

    return chosen


@_for_singles(tirx.exp)
def exp(x: tirx.Expr) -> tirx.Expr:
    """e**x: x = n ln 2 + r with |r| <= ln 2 / 2, then a Taylor polynomial of degree 7 in r."""
    bounded = tirx.max(tirx.min(x, _f(_EXP_OVERFLOW)), _f(_EXP_UNDERFLOW))
    taylor = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)

    def scaled(n: tirx.Expr, r: tirx.Expr) -> tirx.Expr:
        # two factors keep the exponent in range where n reaches 128
        half = tirx.floor(n * _f(0.5))
        return shared(half, lambda h: _horner(r, taylor) * _power_of_two(h) * _power_of_two(n - h))

    def reduced(x: tirx.Expr, n: tirx.Expr) -> tirx.Expr:
        return shared(x - n * _f(_LN2_HIGH) - n * _f(_LN2_LOW), lambda r: scaled(n, r))

    value = shared(
        bounded,
        lambda b: shared(tirx.floor(b * _f(_LOG2_E) + _f(0.5)), lambda n: reduced(b, n)),
    )
    over = tirx.Select(x > _f(_EXP_OVERFLOW), _f(float("inf")), value)
    under = tirx.Select(x < _f(_EXP_UNDERFLOW), _f(0.0), over)
    return tirx.Select(tirx.isnan(x), x, under)


def exp_below_one(x: tirx.Expr) -> tirx.Expr:
    """e**x of a single that is not above 0, in fewer steps than `exp`: below -87, where normal
    numbers end, it is 0."""
    taylor = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)

    def scaled(x: tirx.Expr, n: tirx.Expr) -> tirx.Expr:
        rest = x - n * _f(_LN2_HIGH) - n * _f(_LN2_LOW)
        return shared(rest, lambda r: _horner(r, taylor)) * _power_of_two(n)

    def whole(x: tirx.Expr) -> tirx.Expr:
        return shared(tirx.floor(x * _f(_LOG2_E) + _f(0.5)), lambda n: scaled(x, n))

    def value(x: tirx.Expr) -> tirx.Expr:
        # in this order a NaN stays one
        bounded = shared(tirx.max(_f(_LOWEST), x), whole)
        return tirx.Select(x < _f(_LOWEST), _f(0.0), bounded)

    return shared(x, value)


def expm1(x: tirx.Expr) -> tirx.Expr:
    """e**x - 1, a Taylor polynomial near zero."""
    if dtype(x) != "float32":
        return tirx.exp(x) - tirx.const(1, dtype(x))
    taylor = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0)
    return shared(
        x,
        lambda v: tirx.Select(tirx.abs(v) < _f(0.25), v * _horner(v, taylor), exp(v) - _f(1.0)),
    )


def _power_of_two(n: tirx.Expr) -> tirx.Expr:
    exponent = (tirx.Cast("int32", n) + tirx.const(127, "int32")) << tirx.const(23, "int32")
    return tirx.reinterpret("float32", exponent)


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
    value = shared(tirx.reinterpret("int32", normal), lambda bits: _log_of_bits(bits, shift))
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
        return shared(
            tirx.Select(low, m + m, m) - _f(1.0), lambda c: shared(e, lambda k: series(c, k))
        )

    return shared(mantissa, centred)


def sigmoid(x: tirx.Expr) -> tirx.Expr:
    """1 / (1 + e**-x)."""
    one = tirx.const(1, dtype(x))
    return one / (one + exp(tirx.const(0, dtype(x)) - x))


@_for_singles(tirx.tanh)
def tanh(x: tirx.Expr) -> tirx.Expr:
    """Taylor polynomial near zero, 1 - 2 / (e**2x + 1) elsewhere."""
    square = x * x
    near = x * shared(square, lambda s: _horner(s, (62 / 2835, -17 / 315, 2 / 15, -1 / 3, 1.0)))
    far = _f(1.0) - _f(2.0) / (exp(x + x) + _f(1.0))
    return tirx.Select(tirx.abs(x) < _f(0.2), near, far)


@_for_singles(tirx.erf)
def erf(x: tirx.Expr) -> tirx.Expr:
    """Abramowitz and Stegun 7.1.26 (absolute error below 1.5e-7), Taylor near zero."""
    magnitude = tirx.abs(x)
    weights = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    tail = shared(
        _f(1.0) / (_f(1.0) + _f(0.3275911) * magnitude), lambda t: t * _horner(t, weights)
    )
    # beyond 9 the result is one; the bound keeps the square finite
    reach = tirx.min(magnitude, _f(9.0))
    positive = _f(1.0) - tail * exp(_f(0.0) - reach * reach)
    far = shared(positive, lambda p: tirx.Select(x < _f(0.0), _f(0.0) - p, p))
    series = shared(x * x, lambda s: _horner(s, (1 / 216, -1 / 42, 0.1, -1 / 3, 1.0)))
    near = x * series * _f(1.1283791670955126)
    bounded = tirx.Select(magnitude < _f(0.25), near, far)
    return tirx.Select(tirx.isnan(x), x, bounded)

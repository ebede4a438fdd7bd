"""Values that an expression computes once and uses several times, bound to names around it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from tvm import tirx

Bindings = list[tuple[tirx.Var, tirx.Expr]]
_BINDINGS: ContextVar[Bindings | None] = ContextVar("_BINDINGS", default=None)


def bound(build: Callable[[], tirx.Expr]) -> tirx.Expr:
    """What `build` makes, with all values it shares bound around the whole, innermost last.

    let b = (let a = v in f(a)) in g(b)  -->  let a = v in let b = f(a) in g(b)

    Bindings nested inside the values of others would cost TVM's simplifier time that is
    exponential in the depth.
    """
    found: Bindings = []
    token = _BINDINGS.set(found)
    try:
        result = build()
    finally:
        _BINDINGS.reset(token)
    for name, value in reversed(found):
        result = tirx.Let(name, value, result)
    return result


def is_open() -> bool:
    """Whether a `bound` is at work, to whose end values may be moved."""
    return _BINDINGS.get() is not None


def opened(x: tirx.Expr) -> tirx.Expr:
    """`x` with the bindings around it moved to the enclosing `bound`."""
    found = _BINDINGS.get()
    while found is not None and isinstance(x, tirx.Let):
        found.append((x.var, x.value))
        x = x.body
    return x


def shared(x: tirx.Expr, body: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """`body(x)` with x computed once, however often `body` uses it."""
    found = _BINDINGS.get()
    if found is None:
        return bound(lambda: shared(x, body))
    value = opened(x)
    if isinstance(value, (tirx.Var, tirx.IntImm, tirx.FloatImm)):
        return body(value)
    name = tirx.Var("shared", str(value.ty.dtype))
    found.append((name, value))
    return body(name)

"""Graphs drawn at random, from [1,4,5,5] to the same shape."""

from __future__ import annotations

from hypothesis import strategies as st

from helpers.networks.graph_builder import Builder
from tilewright.graph.network import Graph

SHAPE = (1, 4, 5, 5)


UNARY = ("relu", "tanh", "sigmoid", "identity", "abs", "softplus", "negative")


POOL = {"kernel": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}


def extend(b: Builder, draw: st.DrawFn, live: list[str]) -> str:
    """One random step from [1,4,5,5] to the same shape."""
    x = draw(st.sampled_from(live))
    y = draw(st.sampled_from(live))
    kind = draw(st.integers(0, 13))
    constant = draw(st.sampled_from([(4, 1, 1), (1, 4, 1, 1), (), (1,), (1, 5), SHAPE]))
    if kind <= 2:
        return b.conv(x, 4, draw(st.sampled_from([1, 3])))
    if kind <= 5:
        return b.add(draw(st.sampled_from(["multiply", "add", "subtract"])), x, b.weight(*constant))
    if kind == 6:
        return b.add(draw(st.sampled_from(UNARY)), x)
    if kind == 7:
        return b.add(draw(st.sampled_from(["add", "maximum"])), x, y)
    if kind == 8:
        return b.add("multiply", x, b.add("sigmoid", draw(st.sampled_from([x, y]))))
    return extend_with_movement(b, draw, x, y)


def extend_with_movement(b: Builder, draw: st.DrawFn, x: str, y: str) -> str:
    """One random step that moves elements and may compute on the way."""
    kind = draw(st.integers(9, 13))
    if kind == 9:
        order = draw(st.sampled_from([(0, 1, 3, 2), (0, 1, 2, 3)]))
        return b.add("transpose", x, permutation=order)
    if kind == 10:
        flat = b.add("reshape", x, shape=draw(st.sampled_from([(100,), (4, 25), (20, 5)])))
        if draw(st.booleans()):
            flat = b.add("add", flat, b.weight(b.types[flat].shape[-1]))
        return b.add("reshape", b.add(draw(st.sampled_from(UNARY)), flat), shape=SHAPE)
    if kind == 11:
        edge = (0, 0, 1, 1)
        wide = b.add("pad", x, before=edge, after=edge, value=0.0, mode="constant")
        if draw(st.booleans()):
            return b.add("max_pool2d", wide, **{**POOL, "padding": (0,) * 4})
        return b.conv(wide, 4, padding=(0, 0, 0, 0))
    if kind == 12:
        parts = [draw(st.sampled_from([x, y])) for _ in range(draw(st.integers(1, 3)))]
        both = b.add("concat", x, y, *parts, axis=1)
        stop = (1, 4, 5, 5)
        return b.add("slice", both, starts=(0, 0, 0, 0), stops=stop, steps=(1, 1, 1, 1))
    mean = b.add("reduce_mean", x, axes=(2, 3), keepdims=True)
    return b.add("add", b.add("expand", mean, shape=SHAPE), y)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    b = Builder(draw(st.integers(0, 3)))
    live = [b.input(*SHAPE), b.input(*SHAPE), b.weight(*SHAPE)]
    for _ in range(draw(st.integers(1, 14))):
        live.append(extend(b, draw, live))
    written = [name for name in live if name.startswith("t")]
    others = draw(st.lists(st.sampled_from(written), max_size=2))
    return b.graph(*dict.fromkeys([written[-1], *others]))

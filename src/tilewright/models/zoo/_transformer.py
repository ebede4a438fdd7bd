"""Parts that the transformers share, written as exporters write them."""

from __future__ import annotations

import math

from tilewright.models.zoo._builder import GraphBuilder, Value


def layer_norm(g: GraphBuilder, x: Value, name: str, epsilon: float) -> Value:
    """Normalization over the last axis, as the operator of opset 17."""
    scale = g.normal(f"{name}.weight", (x.shape[-1],), 0.05, mean=1.0)
    shift = g.normal(f"{name}.bias", (x.shape[-1],), 0.05)
    return g.node("LayerNormalization", [x, scale, shift], x.shape, name, axis=-1, epsilon=epsilon)


def linear(g: GraphBuilder, x: Value, features: int, name: str, gain: float = 1.0) -> Value:
    """A linear layer on [batch, sequence, in]: MatMul with weights [in, out], then Add."""
    width = x.shape[-1]
    weight = g.normal(f"{name}.weight", (width, features), math.sqrt(gain / width))
    bias = g.normal(f"{name}.bias", (features,), 0.02)
    return g.add(g.matmul(x, weight, f"{name}.matmul"), bias, f"{name}.add")


def attend(g: GraphBuilder, qkv: list[Value], heads: int, mask: Value | None = None) -> Value:
    """Scaled dot-product attention (Vaswani et al., 2017, eq. 1) over [batch, sequence, width].

    `mask` is boolean; scores where it is False are replaced by the most negative number.
    """
    batch, length, width = qkv[0].shape
    split = (batch, length, heads, width // heads)
    query, key, value = (
        g.reshape(x, split, f"{part}_heads") for x, part in zip(qkv, "qkv", strict=True)
    )
    query = g.transpose(query, (0, 2, 1, 3), "q_transpose")
    key = g.transpose(key, (0, 2, 3, 1), "k_transpose")
    value = g.transpose(value, (0, 2, 1, 3), "v_transpose")
    scores = g.matmul(query, key, "scores")
    scores = g.binary("Div", scores, math.sqrt(width // heads), "scale")
    if mask is not None:
        lowest = g.scalar(-3.4028234663852886e38, "lowest")
        scores = g.node("Where", [mask, scores, lowest], scores.shape, "mask")
    context = g.matmul(g.softmax(scores), value, "context")
    context = g.transpose(context, (0, 2, 1, 3), "context_transpose")
    return g.reshape(context, (batch, length, width), "context_merge")


def gelu_erf(g: GraphBuilder, x: Value, name: str) -> Value:
    """x / 2 * (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016)."""
    with g.scope(name):
        y = g.unary("Erf", g.binary("Div", x, math.sqrt(2.0)))
        return g.multiply(g.multiply(x, g.add(y, 1.0)), 0.5)


def gelu_tanh(g: GraphBuilder, x: Value, name: str) -> Value:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the approximation GPT-2 uses."""
    with g.scope(name):
        cube = g.binary("Pow", x, 3.0)
        inner = g.multiply(g.add(x, g.multiply(cube, 0.044715)), math.sqrt(2.0 / math.pi))
        return g.multiply(g.multiply(x, 0.5), g.add(g.unary("Tanh", inner), 1.0))

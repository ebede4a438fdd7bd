"""Products of matrices, and attention."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.relax_export.calls import (
    Call,
    Translation,
    Value,
    translates,
    translations,
)
from tilewright.compiler.relax_export.convolutions import CODES, sums
from tilewright.compiler.relax_export.writer import refuse


@translates("matmul")
def matmul(call: Call) -> Value:
    """A product of matrices; of codes, the sums are exact."""
    if call.dtype() in CODES and str(call.call.ty.dtype) == "int32":
        return call.node("MatMulInteger", call[0], call[1])
    return sums(call, call.node("MatMul", call[0], call[1]))


@translates("nn.attention", "nn.attention_bias")
def attention(call: Call) -> Value:
    """Rows with heads: [batch, length, heads, depth]."""
    if call.attribute("window_size") is not None:
        raise refuse("attention within a window is not taken")
    depth, scale, causal = call.shape()[3], call.attribute("scale"), call.attribute("causal_mask")
    query, value = (call.node("Transpose", call[p], perm=[0, 2, 1, 3]) for p in (0, 2))
    key = call.node("Transpose", call[1], perm=[0, 2, 3, 1])
    scores = call.node("MatMul", query, key)
    scores = call.node("Mul", scores, call.number(depth**-0.5 if scale is None else scale))
    if len(call.values) > 3 and call[3]:
        scores = call.node("Add", scores, call[3])
    if causal is not None:
        queries, keys = call.fixed(0)[1], call.fixed(1)[1]
        offset = keys - queries if causal == "BottomRight" else 0
        hidden = np.triu(np.full((queries, keys), -np.inf, call.dtype()), 1 + offset)
        scores = call.node("Add", scores, hidden)
    result = call.node("MatMul", call.node("Softmax", scores, axis=-1), value)
    return call.node("Transpose", result, perm=[0, 2, 1, 3])


_FORMULAS: dict[str, Translation] = {
    "outer": lambda call: call.node("Mul", call.node("Unsqueeze", call[0], [1]), call[1]),
    "einsum": lambda call: call.node(
        "Einsum", *call.several, equation=call.attribute("subscripts")
    ),
}
translations(_FORMULAS)

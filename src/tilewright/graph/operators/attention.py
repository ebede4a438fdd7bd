"""Scaled dot-product attention of several heads (Vaswani et al., 2017), as one operator, of numbers
and of codes of eight bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.network import TensorType
from tilewright.graph.operators.base import Operator, Types, broadcast, common_dtype, expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Extents of an attention: each of `heads` compares `queries` with `keys` over `depth`
    elements and adds up values of `width` elements; as many heads read the same keys and values as
    `heads` are of `key_heads`."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    depth: int
    width: int

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """The shape of all scores."""
        return (self.batch, self.heads, self.queries, self.keys)


def heads_of(types: Types, heads: int, key_heads: int, **_named: object) -> Heads:
    """The extents of an attention, of its operands' types. Raises ModelError where they do not fit
    each other."""
    expect(len(types) in (3, 4), f"takes 3 or 4 inputs, got {len(types)}")
    expect(all(len(kind.shape) == 3 for kind in types[:3]), "takes tensors [batch, length, width]")
    common_dtype(types[:3])
    (batch, queries, wide), (_, keys, _), _ = (kind.shape for kind in types[:3])
    divided = min(heads, key_heads) > 0 and heads % key_heads == 0 and wide % heads == 0
    expect(divided, f"{heads} heads, of {key_heads} for keys, do not divide {types[0]}")
    depth, width = wide // heads, types[2].shape[2] // key_heads
    fits = types[1].shape == (batch, keys, key_heads * depth)
    fits = fits and types[2].shape == (batch, keys, key_heads * width) and keys > 0
    expect(fits, f"{types[1]} and {types[2]} do not fit {types[0]} with {heads} heads")
    found = Heads(
        batch=batch, heads=heads, key_heads=key_heads, queries=queries, keys=keys, depth=depth,
        width=width,
    )  # fmt: skip
    for mask in types[3:]:
        fits = mask.dtype in ("bool", types[0].dtype) and len(mask.shape) <= 4
        fits = fits and broadcast((found.scores, mask.shape)) == found.scores
        expect(fits, f"mask {mask} does not fit scores {list(found.scores)}")
    return found


def _type(types: Types, **named: Any) -> TensorType:
    found = heads_of(types, **named)
    shape = (found.batch, found.queries, found.heads * found.width)
    return TensorType(shape, types[0].dtype)


def _work(types: Types, _result: TensorType, **named: Any) -> int:
    found = heads_of(types, **named)
    each = 2 * (found.depth + found.width) + 5
    whole = found.batch * found.heads * found.queries * found.keys
    if named["causal"]:
        whole = found.batch * found.heads * int(visible_keys(found.queries, found.keys).sum())
    return each * whole


def visible_keys(queries: int, keys: int) -> Any:
    """How many keys each query sees of a causal attention; the last one sees all of them."""
    return np.clip(np.arange(queries) + (keys - queries + 1), 0, keys)


def scores(q: Any, k: Any, mask: Any, named: Mapping[str, Any]) -> Any:
    """The scores [batch, heads, queries, keys] that the softmax is taken of."""
    heads, key_heads = named["heads"], named["key_heads"]
    rows = q.reshape(*q.shape[:2], heads, -1).swapaxes(1, 2)
    columns = k.reshape(*k.shape[:2], key_heads, -1).transpose(0, 2, 3, 1)
    found = rows @ np.repeat(columns, heads // key_heads, 1) * q.dtype.type(named["scale"])
    if mask is not None and mask.dtype == np.bool_:
        found = _where(mask, found, float(named["fill"]))
    elif mask is not None:
        found = found + mask.astype(found.dtype)
    if not named["causal"]:
        return found
    seen = visible_keys(q.shape[1], k.shape[1])[:, None]
    return _where(np.arange(k.shape[1]) < seen, found, -np.inf)


def _where(seen: Any, found: Any, other: float) -> Any:
    chosen: Any = np.where(seen, found, np.asarray(other, found.dtype))
    return chosen


def _attention(q: Any, k: Any, v: Any, mask: Any = None, **named: Any) -> Any:
    """In single precision where the operands are halves."""
    wide = np.result_type(q.dtype, np.float32)
    found = scores(q.astype(wide), k.astype(wide), mask, named)
    power = np.exp(found - found.max(axis=-1, keepdims=True))
    heads, key_heads = named["heads"], named["key_heads"]
    values = v.astype(wide).reshape(*v.shape[:2], key_heads, -1).swapaxes(1, 2)
    summed = power @ np.repeat(values, heads // key_heads, 1)
    result = (summed / power.sum(axis=-1, keepdims=True)).swapaxes(1, 2)
    return result.reshape(*q.shape[:2], -1).astype(q.dtype)


ATTENTION = Operator(
    name="attention",
    result_type=_type,
    work=_work,
    compute=_attention,
    arity=None,
    anchor=True,
)


CODING = ("factor", "divisor", "lowest", "highest")
"""What a row of the codings of attention on codes says."""


def heads_of_codes(
    types: Types, heads: int, key_heads: int, masked: int, **_named: object
) -> Heads:
    """The extents of an attention on codes, of its operands' types. Raises ModelError where they do
    not fit each other."""
    expect(len(types) in (5, 6), f"takes 5 or 6 inputs, got {len(types)}")
    *codes, coding, zeros = types[:5]
    expect(all(kind.dtype in ("int8", "uint8") for kind in codes), "takes codes of eight bits")
    rows = coding.shape[0] if coding.shape[1:] == (len(CODING),) else 0
    fits = coding == TensorType(coding.shape) and masked < max(rows, 1) and rows > 0
    expect(fits, f"codings {coding} are no rows of {', '.join(CODING)}")
    expect(zeros == TensorType((3,), "int32"), f"takes three zero points, got {zeros}")
    singles = (TensorType(kind.shape) for kind in codes)
    return heads_of((*singles, *types[5:]), heads, key_heads)


def _type_of_codes(types: Types, **named: Any) -> TensorType:
    found = heads_of_codes(types, **named)
    return TensorType((found.batch, found.queries, found.heads * found.width), "int32")


def _work_of_codes(types: Types, result: TensorType, **named: Any) -> int:
    found = heads_of_codes(types, **named)
    rounded = 4 * types[3].shape[0] * found.batch * found.heads * found.queries * found.keys
    singles = tuple(TensorType(kind.shape) for kind in types[:3])
    return rounded + _work(singles, result, causal=False, **named)


def _coded(x: Any, coding: Any) -> Any:
    """Codes of numbers, less their zero point. What a mask hides, the lowest single say, has no
    quotient by a small divisor: numbers beyond all codes are one code beyond them."""
    _, divisor, lowest, highest = coding
    within = np.clip(x, (lowest - 1) * divisor, (highest + 1) * divisor)
    return np.clip(np.rint(within / divisor), lowest, highest)


def _quantized_attention(
    q: Any, k: Any, v: Any, coding: Any, zeros: Any, mask: Any = None, **named: Any
) -> Any:
    """Sums are exact in double precision."""
    q, k, v = (x.astype(np.float64) - zero for x, zero in zip((q, k, v), zeros, strict=True))
    plain = {**named, "scale": 1.0, "causal": False}
    found = scores(q, k, None, plain).astype(np.float32)
    for place, row in enumerate(coding):
        found = found * row[0]
        found = found + mask if place == named["masked"] else found
        found = _coded(found, row) if place < len(coding) - 1 else found
    power = np.exp(found - found.max(axis=-1, keepdims=True))
    shares = _coded(power / power.sum(axis=-1, keepdims=True), coding[-1]).astype(np.float64)
    heads, key_heads = named["heads"], named["key_heads"]
    values = v.reshape(*v.shape[:2], key_heads, -1).swapaxes(1, 2)
    summed = (shares @ np.repeat(values, heads // key_heads, 1)).swapaxes(1, 2)
    return summed.reshape(*q.shape[:2], -1).astype(np.int32)


QUANTIZED_ATTENTION = Operator(
    name="quantized_attention",
    result_type=_type_of_codes,
    work=_work_of_codes,
    compute=_quantized_attention,
    arity=None,
    anchor=True,
)

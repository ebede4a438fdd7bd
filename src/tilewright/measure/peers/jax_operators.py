"""Our operator vocabulary in JAX: each operator becomes a function of arrays, to be traced."""

# jax is not a dependency and without types here; the lambdas below take its arrays
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from math import prod
from typing import Any, cast

from tilewright.graph.operators.movement import nearest_index

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax, nn = jax.lax, jax.nn

Named = Mapping[str, Any]
Call = Callable[..., Any]

_NAMES = {
    "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "negative": "negative",
    "abs": "abs", "sin": "sin", "cos": "cos", "floor": "floor", "ceil": "ceil",
    "round": "round", "sign": "sign", "reciprocal": "reciprocal", "not": "logical_not",
    "isnan": "isnan", "add": "add", "subtract": "subtract", "multiply": "multiply",
    "power": "power", "maximum": "maximum", "minimum": "minimum", "modulo": "mod",
    "remainder": "fmod", "equal": "equal", "less": "less", "greater": "greater",
    "less_equal": "less_equal", "greater_equal": "greater_equal", "and": "logical_and",
    "or": "logical_or", "where": "where",
}  # fmt: skip
"""Operators that jax.numpy has, by its names."""


def _sides(named: Named) -> list[tuple[int, int]]:
    top, left, bottom, right = named["padding"]
    return [(top, bottom), (left, right)]


_conv = partial(lax.conv_general_dilated, dimension_numbers=("NCHW", "OIHW", "NCHW"))


def _conv2d(named: Named, x: Any, w: Any) -> Any:
    return _conv(
        x,
        w,
        named["strides"],
        _sides(named),
        rhs_dilation=named["dilation"],
        feature_group_count=named["groups"],
    )


def _conv2d_transpose(named: Named, x: Any, w: Any) -> Any:
    """As a convolution with zeros between the elements and with the window turned round."""
    groups, dilation = named["groups"], named["dilation"]
    inner, outer, *window = w.shape
    grouped = w.reshape(groups, inner // groups, outer, *window).swapaxes(1, 2)
    turned = jnp.flip(grouped.reshape(groups * outer, inner // groups, *window), (2, 3))
    reach = [d * (size - 1) for d, size in zip(dilation, window, strict=True)]
    padding = [
        (far - before, far - after + extra)
        for far, (before, after), extra in zip(
            reach, _sides(named), named["output_padding"], strict=True
        )
    ]
    return _conv(
        x,
        turned,
        (1, 1),
        padding,
        lhs_dilation=named["strides"],
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _windows(named: Named, x: Any, start: Any, function: Call) -> Any:
    return lax.reduce_window(
        x,
        start,
        function,
        (1, 1, *named["kernel"]),
        (1, 1, *named["strides"]),
        [(0, 0), (0, 0), *_sides(named)],
        window_dilation=(1, 1, *named["dilation"]),
    )


def _max_pool2d(named: Named, x: Any) -> Any:
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    return _windows(named, x, -jnp.inf if floating else jnp.iinfo(x.dtype).min, lax.max)


def _avg_pool2d(named: Named, x: Any) -> Any:
    sums = _windows(named, x, 0.0, lax.add)
    if named["count_include_pad"]:
        return sums / prod(named["kernel"])
    return sums / jnp.maximum(_windows(named, jnp.ones_like(x), 0.0, lax.add), 1)


def _lrn(named: Named, x: Any) -> Any:
    size, before = named["size"], (named["size"] - 1) // 2
    padding = [(0, 0), (before, size - 1 - before), (0, 0), (0, 0)]
    ones = (1, 1, 1, 1)
    sums = lax.reduce_window(x * x, 0.0, lax.add, (1, size, 1, 1), ones, padding)
    return x / (named["bias"] + named["alpha"] / size * sums) ** named["beta"]


def _reduced(function: Call, named: Named, x: Any) -> Any:
    axes = tuple(named["axes"])
    return function(x, axis=axes, keepdims=bool(named["keepdims"])) if axes else x


def _sum(function: Call, named: Named, x: Any) -> Any:
    return _reduced(partial(function, dtype=x.dtype), named, x)


def _normalised(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    return nn.standardize(x, axis=axes, epsilon=epsilon)


def _layer_norm(named: Named, x: Any, scale: Any, bias: Any) -> Any:
    axes = tuple(range(named["axis"] % x.ndim, x.ndim))
    return _normalised(x, axes, named["epsilon"]) * scale + bias


def _rms_norm(named: Named, x: Any, scale: Any) -> Any:
    axes = tuple(range(named["axis"] % x.ndim, x.ndim))
    squares = jnp.mean(x * x, axis=axes, keepdims=True)
    return x * lax.rsqrt(squares + named["epsilon"]) * scale


def _instance_norm(named: Named, x: Any, scale: Any, bias: Any) -> Any:
    spread = (-1, *(1 for _ in x.shape[2:]))
    inside = _normalised(x, tuple(range(2, x.ndim)), named["epsilon"])
    return inside * scale.reshape(spread) + bias.reshape(spread)


def _attention(n: Named, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    heads, shared = n["heads"], n["heads"] // n["key_heads"]
    q, k, v = (
        x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)
        for x, count in ((q, heads), (k, n["key_heads"]), (v, n["key_heads"]))
    )
    k, v = (jnp.repeat(x, shared, axis=1) for x in (k, v))
    scores = jnp.matmul(q, k.swapaxes(2, 3)) * n["scale"]
    if mask is not None:
        boolean = mask.dtype == bool
        scores = jnp.where(mask, scores, float(n["fill"])) if boolean else scores + mask
    if n["causal"]:
        seen = jnp.tril(jnp.ones(scores.shape[2:], bool), scores.shape[3] - scores.shape[2])
        scores = jnp.where(seen, scores, -jnp.inf)
    result = jnp.matmul(nn.softmax(scores, axis=-1), v).swapaxes(1, 2)
    return result.reshape(*result.shape[:2], -1)


def _slice(named: Named, x: Any) -> Any:
    index = tuple(
        slice(start, None if stop < 0 else stop, step)
        for start, stop, step in zip(named["starts"], named["stops"], named["steps"], strict=True)
    )
    return x[index]


def _pad(named: Named, x: Any) -> Any:
    if named["mode"] != "constant":
        raise NotImplementedError(f"padding by {named['mode']}")
    sides = list(zip(named["before"], named["after"], strict=True))
    return jnp.pad(x, sides, constant_values=named["value"])


def _gather(named: Named, x: Any, indices: Any) -> Any:
    size = x.shape[named["axis"]]
    return jnp.take(x, jnp.where(indices < 0, indices + size, indices), axis=named["axis"])


def _cache_write(named: Named, cache: Any, rows: Any, place: Any) -> Any:
    axis = named["axis"]
    size, turned = cache.shape[axis], jnp.moveaxis(cache, axis, 0)
    at = jnp.arange(rows.shape[axis]) + place.reshape(-1)
    inside = jnp.where(at < 0, size, at)
    return jnp.moveaxis(turned.at[inside].set(jnp.moveaxis(rows, axis, 0), mode="drop"), 0, axis)


def _resize_nearest(named: Named, x: Any) -> Any:
    for axis, (size, scale) in enumerate(zip(named["shape"], named["scales"], strict=True)):
        before = x.shape[axis]
        order = [nearest_index(i, before, size, scale, named) for i in range(size)]
        x = jnp.take(x, jnp.array(order), axis=axis)
    return x


def _interpolate(named: Named, x: Any, indices: Any, weights: Any) -> Any:
    axis = named["axis"]
    spread = (-1, *(1 for _ in x.shape[axis + 1 :]))
    taps = zip(indices, weights, strict=True)
    return sum(jnp.take(x, index, axis=axis) * w.reshape(spread) for index, w in taps)


def _shift_left(_named: Named, a: Any, bits: Any) -> Any:
    last = jnp.iinfo(a.dtype).bits - 1
    shifted = jnp.left_shift(a, jnp.clip(bits, 0, last))
    return jnp.where((bits >= 0) & (bits <= last), shifted, 0)


def _shift_right(_named: Named, a: Any, bits: Any) -> Any:
    last = jnp.iinfo(a.dtype).bits - 1
    return jnp.right_shift(a, jnp.where((bits >= 0) & (bits <= last), bits, last))


def _divide(_named: Named, a: Any, b: Any) -> Any:
    return a / b if jnp.issubdtype(a.dtype, jnp.floating) else lax.div(*jnp.broadcast_arrays(a, b))


def _shrink(n: Named, x: Any) -> Any:
    outside = jnp.where(x > n["lambd"], x - n["bias"], 0.0)
    return jnp.where(x < -n["lambd"], x + n["bias"], outside)


_CALLED: dict[str, Call] = {
    "relu": lambda _, x: jnp.maximum(x, 0),
    "sigmoid": lambda _, x: nn.sigmoid(x),
    "rsqrt": lambda _, x: lax.rsqrt(x),
    "erf": lambda _, x: lax.erf(x),
    "softplus": lambda _, x: nn.softplus(x),
    "silu": lambda _, x: nn.silu(x),
    "gelu": lambda _, x: nn.gelu(x, approximate=False),
    "hard_swish": lambda _, x: x * jnp.clip(x + 3, 0, 6) / 6,
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "lrn": _lrn,
    "slice": _slice,
    "pad": _pad,
    "dense": lambda _, x, w: jnp.matmul(x, w),
    "batch_matmul": lambda n, a, b: jnp.matmul(a, b.swapaxes(-1, -2) if n["transpose_b"] else b),
    "reduce_sum": partial(_sum, jnp.sum),
    "reduce_mean": partial(_reduced, jnp.mean),
    "reduce_max": partial(_reduced, jnp.max),
    "reduce_min": partial(_reduced, jnp.min),
    "reduce_prod": partial(_sum, jnp.prod),
    "softmax": lambda n, x: nn.softmax(x, axis=n["axis"]),
    "log_softmax": lambda n, x: nn.log_softmax(x, axis=n["axis"]),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "instance_norm": _instance_norm,
    "identity": lambda _, x: x,
    "clip": lambda n, x: jnp.clip(x, float(n["minimum"]), float(n["maximum"])),
    "leaky_relu": lambda n, x: jnp.where(x < 0, x * n["alpha"], x),
    "elu": lambda n, x: nn.elu(x, n["alpha"]),
    "celu": lambda n, x: nn.celu(x, n["alpha"]),
    "thresholded_relu": lambda n, x: jnp.where(x > n["alpha"], x, 0.0),
    "selu": lambda n, x: n["gamma"] * nn.elu(x, n["alpha"]),
    "hard_sigmoid": lambda n, x: jnp.clip(n["alpha"] * x + n["beta"], 0, 1),
    "shrink": _shrink,
    "cast": lambda n, x: x.astype(n["dtype"]),
    "bitcast": lambda n, x: lax.bitcast_convert_type(x, n["dtype"]),
    "divide": _divide,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "prelu": lambda _, x, slope: jnp.where(x < 0, x * slope, x),
    "reshape": lambda n, x: x.reshape(n["shape"]),
    "transpose": lambda n, x: jnp.transpose(x, n["permutation"]),
    "concat": lambda n, *xs: jnp.concatenate(xs, n["axis"]),
    "expand": lambda n, x: jnp.broadcast_to(x, n["shape"]),
    "gather": _gather,
    "cache_write": _cache_write,
    "resize_nearest": _resize_nearest,
    "interpolate": _interpolate,
}
"""Functions of attributes and arrays."""


def jax_call(operator: str, attributes: Named) -> Call:
    """What computes one of our operators on arrays of JAX.

    Raises `NotImplementedError` for operators that have no call, and when it is called for
    attributes that have none.
    """
    if operator in _NAMES:
        return cast(Call, getattr(jnp, _NAMES[operator]))
    if operator not in _CALLED:
        raise NotImplementedError(f"operator {operator}")
    return partial(_CALLED[operator], attributes)

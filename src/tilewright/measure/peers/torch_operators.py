"""Our operator vocabulary in eager torch: each operator becomes a function of tensors."""

# torch is an extra without types here; the lambdas below take its tensors
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from math import prod
from typing import Any, cast

from tilewright.graph.operators.movement import nearest_index

torch: Any = import_module("torch")
functional: Any = torch.nn.functional

Named = Mapping[str, Any]
Call = Callable[..., Any]

_NAMES = {
    "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "log": "log",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "negative": "neg", "abs": "abs", "erf": "erf",
    "sin": "sin", "cos": "cos", "floor": "floor", "ceil": "ceil", "round": "round",
    "sign": "sign", "reciprocal": "reciprocal", "not": "logical_not", "isnan": "isnan",
    "add": "add", "subtract": "sub", "multiply": "mul", "power": "pow", "maximum": "maximum",
    "minimum": "minimum", "modulo": "remainder", "remainder": "fmod", "equal": "eq",
    "less": "lt", "greater": "gt", "less_equal": "le", "greater_equal": "ge",
    "and": "logical_and", "or": "logical_or",
}  # fmt: skip
"""Operators that torch has, by its names."""


def _padded(named: Named, value: float) -> tuple[Call, tuple[int, int]]:
    """A padding step of its own, and what the operator itself may do: uneven sides cannot, and
    pools refuse padding of more than half a window."""
    top, left, bottom, right = named["padding"]
    window = named.get("kernel", (2 * top, 2 * left))
    if (top, left) == (bottom, right) and 2 * top <= window[0] and 2 * left <= window[1]:
        return (lambda x: x), (top, left)
    return (lambda x: functional.pad(x, (left, right, top, bottom), value=value)), (0, 0)


def _conv2d(named: Named) -> Call:
    pad, padding = _padded(named, 0.0)
    strides, dilation, groups = named["strides"], named["dilation"], named["groups"]
    return lambda x, w, bias=None: functional.conv2d(
        pad(x), w, bias, strides, padding, dilation, groups
    )


def _conv2d_transpose(named: Named) -> Call:
    top, left, bottom, right = named["padding"]
    extra, strides, dilation = named["output_padding"], named["strides"], named["dilation"]
    groups = named["groups"]
    small = all(extra[i] < max(strides[i], dilation[i]) for i in range(2))
    if small and (top, left) == (bottom, right):
        return lambda x, w, bias=None: functional.conv_transpose2d(
            x, w, bias, strides, (top, left), extra, groups, dilation
        )
    grown = (0, max(extra[1] - right, 0), 0, max(extra[0] - bottom, 0))

    def call(x: Any, w: Any, bias: Any = None) -> Any:
        full = functional.conv_transpose2d(x, w, None, strides, 0, 0, groups, dilation)
        height = full.shape[2] - max(bottom - extra[0], 0)
        width = full.shape[3] - max(right - extra[1], 0)
        result = functional.pad(full, grown)[:, :, top:, left:]
        result = result[:, :, : height + grown[3] - top, : width + grown[1] - left]
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    return call


def _max_pool2d(named: Named) -> Call:
    pad, padding = _padded(named, float("-inf"))
    return lambda x: functional.max_pool2d(
        pad(x), named["kernel"], named["strides"], padding, named["dilation"]
    )


def _avg_pool2d(named: Named) -> Call:
    kernel, strides = named["kernel"], named["strides"]
    if max(named["dilation"]) > 1:
        raise NotImplementedError("average pooling with dilation")
    pad, padding = _padded(named, 0.0)
    if named["count_include_pad"] or padding != (0, 0) or not any(named["padding"]):
        included = bool(named["count_include_pad"])
        return lambda x: functional.avg_pool2d(pad(x), kernel, strides, padding, False, included)
    size = prod(kernel)

    def call(x: Any) -> Any:
        ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
        sums, counts = (functional.avg_pool2d(pad(t), kernel, strides) * size for t in (x, ones))
        return sums / counts.clamp(min=1)

    return call


def _product(x: Any, axes: Sequence[int], *, keepdim: bool) -> Any:
    for axis in reversed(axes):
        x = torch.prod(x, axis, keepdim=keepdim)
    return x


def _reduced(function: Call, named: Named, x: Any) -> Any:
    axes = tuple(named["axes"])
    return function(x, axes, keepdim=bool(named["keepdims"])) if axes else x


def _layer_norm(named: Named, x: Any, scale: Any, bias: Any) -> Any:
    shape = tuple(x.shape[named["axis"] :])
    return functional.layer_norm(
        x, shape, scale.expand(shape), bias.expand(shape), float(named["epsilon"])
    )


def _rms_norm(named: Named, x: Any, scale: Any) -> Any:
    shape = tuple(x.shape[named["axis"] :])
    return functional.rms_norm(x, shape, scale.expand(shape), float(named["epsilon"]))


def _lrn(named: Named) -> Call:
    size, alpha, beta, bias = (named[key] for key in ("size", "alpha", "beta", "bias"))
    if size % 2 == 0:
        raise NotImplementedError("local response normalisation over an even number of channels")
    return lambda x: functional.local_response_norm(x, size, alpha, beta, bias)


@cache
def _indices(order: tuple[int, ...], device: Any) -> Any:
    """Made once: while launches are captured, nothing is copied to a GPU."""
    return torch.tensor(order, dtype=torch.int64, device=device)


def _slice(named: Named) -> Call:
    bounds = list(zip(named["starts"], named["stops"], named["steps"], strict=True))
    if all(step > 0 for _, _, step in bounds):
        index = tuple(slice(*bound) for bound in bounds)
        return lambda x: x[index]

    def call(x: Any) -> Any:
        for axis, bound in enumerate(bounds):
            if bound != (0, x.shape[axis], 1):
                x = x.index_select(axis, _indices(tuple(range(*bound)), x.device))
        return x

    return call


def _pad(named: Named) -> Call:
    sides = zip(reversed(named["before"]), reversed(named["after"]), strict=True)
    widths = [width for side in sides for width in side]
    if named["mode"] != "constant":
        raise NotImplementedError(f"padding by {named['mode']}")
    return lambda x: functional.pad(x, widths, value=named["value"])


def _gather(named: Named, x: Any, indices: Any) -> Any:
    axis = named["axis"]
    flat = torch.where(indices < 0, indices + x.shape[axis], indices).reshape(-1)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


def _cache_write(named: Named, cache: Any, rows: Any, place: Any) -> Any:
    axis = named["axis"]
    at = torch.arange(rows.shape[axis], device=rows.device) + place.reshape(-1)
    inside = torch.nonzero((at >= 0) & (at < cache.shape[axis])).reshape(-1)
    return cache.index_copy(axis, at[inside], rows.index_select(axis, inside))


def _resize_nearest(named: Named, x: Any) -> Any:
    for axis, (size, scale) in enumerate(zip(named["shape"], named["scales"], strict=True)):
        before = x.shape[axis]
        if before != size or scale != 1:
            order = tuple(nearest_index(i, before, size, scale, named) for i in range(size))
            x = x.index_select(axis, _indices(order, x.device))
    return x


def _interpolate(named: Named, x: Any, indices: Any, weights: Any) -> Any:
    axis = named["axis"]
    spread = (-1, *(1 for _ in x.shape[axis + 1 :]))
    taps = zip(indices, weights, strict=True)
    return sum(x.index_select(axis, index) * w.reshape(spread) for index, w in taps)


def _shift_left(_named: Named, a: Any, bits: Any) -> Any:
    """Torch gives no meaning to shifts by a negative number of bits, or by all of them."""
    last = torch.iinfo(a.dtype).bits - 1
    shifted = torch.bitwise_left_shift(a, bits.clamp(0, last))
    return torch.where((bits >= 0) & (bits <= last), shifted, 0)


def _shift_right(_named: Named, a: Any, bits: Any) -> Any:
    last = torch.iinfo(a.dtype).bits - 1
    return torch.bitwise_right_shift(a, torch.where((bits >= 0) & (bits <= last), bits, last))


def _divide(_named: Named, a: Any, b: Any) -> Any:
    return a / b if a.dtype.is_floating_point else torch.div(a, b, rounding_mode="trunc")


def _shrink(x: Any, bias: float, lambd: float) -> Any:
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0.0))


def _attention(n: Named, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    fill = float(n["fill"])
    if mask is not None and mask.dtype == torch.bool:
        if fill > -1000:
            raise NotImplementedError(f"attention that replaces scores by {fill}")
        mask = torch.where(mask, 0.0, fill)
    if n["causal"]:
        order = (q.shape[1], k.shape[1])
        later = torch.ones(order, device=q.device).tril(order[1] - order[0]) == 0
        mask = torch.where(later, -torch.inf, 0.0 if mask is None else mask)
    q, k, v = (
        x.unflatten(2, (n[count], -1)).transpose(1, 2)
        for x, count in ((q, "heads"), (k, "key_heads"), (v, "key_heads"))
    )
    result = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=n["scale"], enable_gqa=n["key_heads"] < n["heads"]
    )
    return result.transpose(1, 2).flatten(2)


_BOUND: dict[str, Callable[[Named], Call]] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "lrn": _lrn,
    "softplus": lambda _: functional.softplus,
    "silu": lambda _: functional.silu,
    "gelu": lambda _: functional.gelu,
    "hard_swish": lambda _: functional.hardswish,
    "where": lambda _: torch.where,
    "slice": _slice,
    "pad": _pad,
}
"""What makes a function of tensors out of attributes: operators that prepare something, or that
refuse some attributes."""

_CALLED: dict[str, Call] = {
    "dense": lambda _, x, w, bias=None: functional.linear(x, w.t(), bias),
    "batch_matmul": lambda n, a, b: torch.matmul(a, b.transpose(-1, -2) if n["transpose_b"] else b),
    "reduce_sum": partial(_reduced, torch.sum),
    "reduce_mean": partial(_reduced, torch.mean),
    "reduce_max": partial(_reduced, torch.amax),
    "reduce_min": partial(_reduced, torch.amin),
    "reduce_prod": partial(_reduced, _product),
    "softmax": lambda n, x: torch.softmax(x, n["axis"]),
    "log_softmax": lambda n, x: torch.log_softmax(x, n["axis"]),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "instance_norm": lambda n, x, scale, bias: functional.instance_norm(
        x, weight=scale, bias=bias, eps=n["epsilon"]
    ),
    "identity": lambda _, x: x,
    "clip": lambda n, x: x.clamp(float(n["minimum"]), float(n["maximum"])),
    "leaky_relu": lambda n, x: functional.leaky_relu(x, n["alpha"]),
    "elu": lambda n, x: functional.elu(x, n["alpha"]),
    "celu": lambda n, x: functional.celu(x, n["alpha"]),
    "thresholded_relu": lambda n, x: functional.threshold(x, n["alpha"], 0.0),
    "selu": lambda n, x: n["gamma"] * functional.elu(x, n["alpha"]),
    "hard_sigmoid": lambda n, x: (n["alpha"] * x + n["beta"]).clamp(0, 1),
    "shrink": lambda n, x: _shrink(x, float(n["bias"]), float(n["lambd"])),
    "cast": lambda n, x: x.to(getattr(torch, n["dtype"])),
    "bitcast": lambda n, x: x.view(getattr(torch, n["dtype"])),
    "divide": _divide,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "prelu": lambda _, x, slope: torch.where(x < 0, x * slope, x),
    "reshape": lambda n, x: x.reshape(n["shape"]),
    "transpose": lambda n, x: x.permute(n["permutation"]),
    "concat": lambda n, *xs: torch.cat(xs, n["axis"]),
    "expand": lambda n, x: x.expand(n["shape"]),
    "gather": _gather,
    "cache_write": _cache_write,
    "resize_nearest": _resize_nearest,
    "interpolate": _interpolate,
}
"""Functions of attributes and tensors."""


def torch_call(operator: str, attributes: Named) -> Call:
    """What computes one of our operators on torch tensors.

    `conv2d`, `conv2d_transpose` and `dense` take a bias vector as an optional last argument.
    Raises `NotImplementedError` for operators and attributes eager torch has no call for.
    """
    if operator in _NAMES:
        return cast(Call, getattr(torch, _NAMES[operator]))
    if operator in _CALLED:
        return partial(_CALLED[operator], attributes)
    if operator not in _BOUND:
        raise NotImplementedError(f"operator {operator}")
    return _BOUND[operator](attributes)

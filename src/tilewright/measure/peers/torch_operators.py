"""Our operator vocabulary in eager torch: each entry makes a function of tensors."""

# torch is an extra without types here; the lambdas below take its tensors
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
        sums, counts = (functional.avg_pool2d(pad(t), kernel, strides) * size for t in (x, ones))
        return sums / counts.clamp(min=1)

    return call


def _product(x: Any, axes: Sequence[int], *, keepdim: bool) -> Any:
    for axis in reversed(axes):
        x = torch.prod(x, axis, keepdim=keepdim)
    return x


def _reduction(function: Call) -> Callable[[Named], Call]:
    def make(named: Named) -> Call:
        axes, keep = tuple(named["axes"]), bool(named["keepdims"])
        return lambda x: function(x, axes, keepdim=keep) if axes else x

    return make


def _layer_norm(named: Named) -> Call:
    def call(x: Any, scale: Any, bias: Any) -> Any:
        shape = tuple(x.shape[named["axis"] :])
        return functional.layer_norm(
            x, shape, scale.expand(shape), bias.expand(shape), float(named["epsilon"])
        )

    return call


def _lrn(named: Named) -> Call:
    size, alpha, beta, bias = (named[key] for key in ("size", "alpha", "beta", "bias"))
    if size % 2 == 0:
        raise NotImplementedError("local response normalisation over an even number of channels")
    return lambda x: functional.local_response_norm(x, size, alpha, beta, bias)


def _slice(named: Named) -> Call:
    bounds = list(zip(named["starts"], named["stops"], named["steps"], strict=True))
    if all(step > 0 for _, _, step in bounds):
        index = tuple(slice(*bound) for bound in bounds)
        return lambda x: x[index]

    def call(x: Any) -> Any:
        for axis, bound in enumerate(bounds):
            if bound != (0, x.shape[axis], 1):
                x = x.index_select(axis, torch.tensor(list(range(*bound)), dtype=torch.int64))
        return x

    return call


def _pad(named: Named) -> Call:
    sides = zip(reversed(named["before"]), reversed(named["after"]), strict=True)
    widths = [width for side in sides for width in side]
    if named["mode"] != "constant":
        raise NotImplementedError(f"padding by {named['mode']}")
    return lambda x: functional.pad(x, widths, value=named["value"])


def _gather(named: Named) -> Call:
    axis = named["axis"]

    def call(x: Any, indices: Any) -> Any:
        size = x.shape[axis]
        flat = torch.where(indices < 0, indices + size, indices).reshape(-1)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return x.index_select(axis, flat).reshape(shape)

    return call


def _resize_nearest(named: Named) -> Call:
    after, scales = named["shape"], named["scales"]

    def call(x: Any) -> Any:
        for axis, (size, scale) in enumerate(zip(after, scales, strict=True)):
            before = x.shape[axis]
            if before != size or scale != 1:
                order = [nearest_index(i, before, size, scale, named) for i in range(size)]
                x = x.index_select(axis, torch.tensor(order))
        return x

    return call


def _interpolate(named: Named) -> Call:
    axis = named["axis"]

    def call(x: Any, indices: Any, weights: Any) -> Any:
        spread = (-1, *(1 for _ in x.shape[axis + 1 :]))
        taps = zip(indices, weights, strict=True)
        return sum(x.index_select(axis, index) * w.reshape(spread) for index, w in taps)

    return call


def _shift(name: str) -> Call:
    """Torch gives no meaning to shifts by a negative number of bits, or by all of them."""

    def call(a: Any, bits: Any) -> Any:
        last = torch.iinfo(a.dtype).bits - 1
        inside = (bits >= 0) & (bits <= last)
        if name == "shift_right":
            return torch.bitwise_right_shift(a, torch.where(inside, bits, last))
        return torch.where(inside, torch.bitwise_left_shift(a, bits.clamp(0, last)), 0)

    return call


def _divide(a: Any, b: Any) -> Any:
    return a / b if a.dtype.is_floating_point else torch.div(a, b, rounding_mode="trunc")


_MAKERS: dict[str, Callable[[Named], Call]] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": lambda _n: lambda x, w, bias=None: functional.linear(x, w.t(), bias),
    "batch_matmul": lambda n: (
        lambda a, b: torch.matmul(a, b.transpose(-1, -2) if n["transpose_b"] else b)
    ),
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "reduce_sum": _reduction(torch.sum),
    "reduce_mean": _reduction(torch.mean),
    "reduce_max": _reduction(torch.amax),
    "reduce_min": _reduction(torch.amin),
    "reduce_prod": _reduction(_product),
    "softmax": lambda n: lambda x: torch.softmax(x, n["axis"]),
    "log_softmax": lambda n: lambda x: torch.log_softmax(x, n["axis"]),
    "layer_norm": _layer_norm,
    "lrn": _lrn,
    "instance_norm": lambda n: (
        lambda x, scale, bias: functional.instance_norm(
            x, weight=scale, bias=bias, eps=n["epsilon"]
        )
    ),
    "softplus": lambda _n: functional.softplus,
    "silu": lambda _n: functional.silu,
    "gelu": lambda _n: functional.gelu,
    "hard_swish": lambda _n: functional.hardswish,
    "identity": lambda _n: lambda x: x,
    "clip": lambda n: lambda x: x.clamp(float(n["minimum"]), float(n["maximum"])),
    "leaky_relu": lambda n: lambda x: functional.leaky_relu(x, n["alpha"]),
    "elu": lambda n: lambda x: functional.elu(x, n["alpha"]),
    "thresholded_relu": lambda n: lambda x: functional.threshold(x, n["alpha"], 0.0),
    "selu": lambda n: lambda x: n["gamma"] * functional.elu(x, n["alpha"]),
    "hard_sigmoid": lambda n: lambda x: (n["alpha"] * x + n["beta"]).clamp(0, 1),
    "cast": lambda n: lambda x: x.to(getattr(torch, n["dtype"])),
    "divide": lambda _n: _divide,
    "shift_left": lambda _n: _shift("shift_left"),
    "shift_right": lambda _n: _shift("shift_right"),
    "prelu": lambda _n: lambda x, slope: torch.where(x < 0, x * slope, x),
    "where": lambda _n: torch.where,
    "reshape": lambda n: lambda x: x.reshape(n["shape"]),
    "transpose": lambda n: lambda x: x.permute(n["permutation"]),
    "slice": _slice,
    "concat": lambda n: lambda *xs: torch.cat(xs, n["axis"]),
    "pad": _pad,
    "expand": lambda n: lambda x: x.expand(n["shape"]),
    "gather": _gather,
    "resize_nearest": _resize_nearest,
    "interpolate": _interpolate,
}


def torch_call(operator: str, attributes: Named) -> Call:
    """What computes one of our operators on torch tensors.

    `conv2d`, `conv2d_transpose` and `dense` take a bias vector as an optional last argument.
    Raises `NotImplementedError` for operators and attributes eager torch has no call for.
    """
    if operator in _NAMES:
        return cast(Call, getattr(torch, _NAMES[operator]))
    if operator not in _MAKERS:
        raise NotImplementedError(f"operator {operator}")
    return _MAKERS[operator](attributes)

"""Softmax and normalisations over a part of the axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.network import Array
from tilewright.graph.operators.base import Flop, Infer, Named, Operator, Types
from tilewright.graph.operators.checks import (
    arity,
    broadcast,
    check_axis,
    common_dtype,
    expect,
    integer,
    number,
)
from tilewright.graph.tensor import TensorType


def _per_element(count: int) -> Flop:
    def flop(_types: Types, result: TensorType, _named: Named) -> int:
        return count * result.elements

    return flop


def _infer_softmax(name: str) -> Infer:
    def infer(types: Types, named: Named) -> TensorType:
        arity(name, types, 1)
        check_axis(name, integer(named, "axis"), len(types[0].shape))
        return types[0]

    return infer


def _softmax(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    axis = integer(named, "axis")
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)


def _log_softmax(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    axis = integer(named, "axis")
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def _infer_layer_norm(types: Types, named: Named) -> TensorType:
    arity("layer_norm", types, 3)
    common_dtype("layer_norm", types)
    shape, axis = types[0].shape, integer(named, "axis")
    check_axis("layer_norm", axis, len(shape))
    for kind in types[1:]:
        fits = broadcast("layer_norm", (shape[axis:], kind.shape)) == shape[axis:]
        expect(fits, "layer_norm", f"{kind} does not fit the normalised part of {types[0]}")
    return types[0]


def _layer_norm(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    axes = tuple(range(integer(named, "axis"), x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    scale: Any = arrays[1]
    bias: Any = arrays[2]
    return centred / np.sqrt(variance + number(named, "epsilon")) * scale + bias


def _infer_lrn(types: Types, _named: Named) -> TensorType:
    arity("lrn", types, 1)
    expect(len(types[0].shape) >= 2, "lrn", f"takes a tensor of rank 2 or more, got {types[0]}")
    return types[0]


def _flop_lrn(_types: Types, result: TensorType, named: Named) -> int:
    return (2 * integer(named, "size") + 4) * result.elements


def _lrn(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    size = integer(named, "size")
    channels = x.shape[1]
    squares, total = np.square(x), np.zeros_like(x)
    for offset in range(-((size - 1) // 2), size // 2 + 1):
        low, high = max(0, -offset), min(channels, channels - offset)
        if low < high:
            total[:, low:high] += squares[:, low + offset : high + offset]
    scale = number(named, "bias") + number(named, "alpha") / size * total
    return x / np.power(scale, number(named, "beta"))


def _infer_instance_norm(types: Types, _named: Named) -> TensorType:
    arity("instance_norm", types, 3)
    common_dtype("instance_norm", types)
    shape = types[0].shape
    fits = len(shape) >= 3 and all(kind.shape == shape[1:2] for kind in types[1:])
    expect(fits, "instance_norm", f"{types[1]} and {types[2]} do not fit {types[0]}")
    return types[0]


def _instance_norm(arrays: tuple[Array, ...], named: Named) -> Array:
    x: Any = arrays[0]
    axes = tuple(range(2, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    spread = (1, -1, *(1 for _ in axes))
    scale, bias = arrays[1].reshape(spread), arrays[2].reshape(spread)
    wide: Any = centred / np.sqrt(variance + number(named, "epsilon"))
    return wide * scale + bias


NORMALIZATION = (
    Operator(
        name="softmax",
        infer=_infer_softmax("softmax"),
        flop=_per_element(5),
        reference=_softmax,
        anchor=True,
    ),
    Operator(
        name="log_softmax",
        infer=_infer_softmax("log_softmax"),
        flop=_per_element(5),
        reference=_log_softmax,
        anchor=True,
    ),
    Operator(
        name="layer_norm",
        infer=_infer_layer_norm,
        flop=_per_element(8),
        reference=_layer_norm,
        anchor=True,
    ),
    Operator(name="lrn", infer=_infer_lrn, flop=_flop_lrn, reference=_lrn, anchor=True),
    Operator(
        name="instance_norm",
        infer=_infer_instance_norm,
        flop=_per_element(8),
        reference=_instance_norm,
        anchor=True,
    ),
)

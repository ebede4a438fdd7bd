"""Fourier transforms: products with constant matrices of cosines and sines, one for each factor of
the length.

DFT(x[…,12,1])      →     dense(x[…,12], basis[12,24])
DFT(x[…,1024,1])    →     dense(x[…,32,32], basis[32,64]), rotated, dense(…[…,32,64], basis[64,64])
"""

from __future__ import annotations

from math import gcd, isqrt
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.graph.clean.edit import only_if
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.graph.network import Array
from tilewright.models.onnx_import.node import OnnxNode, Tensor, Translated, axis_of, translates

_SHORT = 64
"""A transform of at most so many elements is one product, whatever its factors: on one core,
complex ones of 128 elements take 1.7 times as long so as in two steps, of 1,024 twenty times."""


@translates("DFT")
def fourier(node: OnnxNode) -> Translated:
    """DFT → products along its axis, which is moved before the last one for a while."""
    x, size = node.input(0), node.input(0).shape
    only_if(x.rank > 1 and size[-1] in (1, 2) and x.type.elements > 0)
    (named,) = node.known_integers(2, (node.integer("axis", 1 if node.opset < 20 else -2),))
    axis = axis_of(named, x.rank, node.name)
    if axis == x.rank - 1:
        raise ModelError("its axis is the last one, which holds real and imaginary parts")
    inverse, half = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    real = inverse and half
    (length,) = node.known_integers(1, (2 * (size[axis] - 1) if real else size[axis],))
    if length < 1:
        raise ModelError(f"it is a transform of {length} elements")
    only_if(length * 2 * np.dtype(x.dtype).itemsize <= FOLDED_BYTES)
    order = [place for place in range(x.rank) if place != axis]
    order.insert(-1, axis)
    x = x.transpose(order)
    x = _mirrored(x, length) if real else x.cut({x.rank - 2: slice(length)})
    columns = length // 2 + 1 if half and not inverse else length
    result = _transformed(x, length, columns, inverse=inverse)
    result = result.cut({x.rank - 1: slice(1)}) if real else result
    return result.transpose(np.argsort(order).tolist())


@translates("STFT")
def short_time_fourier(node: OnnxNode) -> Translated:
    """STFT → frames gathered in blocks that they share, times the window, and their transform."""
    x, window = node.input(0), node.given(2)
    only_if(x.rank == 3 and x.shape[-1] in (1, 2))
    batch, size, parts = x.shape
    (step,) = node.known_integers(1)
    (length,) = node.known_integers(3, (window.type.elements if window else size,))
    only_if(window is None or window.shape == (length,))
    if step < 1 or not 1 <= length <= size:
        raise ModelError(f"it takes frames of {length} in steps of {step} from {size} elements")
    count, block = (size - length) // step + 1, gcd(step, length)
    only_if(count * (length // block) * np.dtype(np.int64).itemsize <= FOLDED_BYTES)
    used = (count - 1) * step + length
    places = np.arange(count)[:, None] * (step // block) + np.arange(length // block)
    blocks = x.cut({1: slice(used)}).reshape((batch, used // block, block * parts))
    frames = blocks.take(places, 1).reshape((batch, count, length, parts))
    if window is not None:
        frames = frames * window.reshape((length, 1))
    columns = length // 2 + 1 if node.integer("onesided", 1) else length
    return _transformed(frames, length, columns)


def _mirrored(x: Tensor, length: int) -> Tensor:
    """The whole spectrum of a real signal of which a part [...,k,2] is given, conjugate to the
    rest; what is beyond the part is zeros."""
    given, parts = x.shape[-2:]
    places = np.arange(length)
    mirrored = np.minimum(places, length - places)
    signs = np.stack([np.ones(length), np.sign(length - 2 * places) * (places > 0)], -1)
    signs[mirrored >= given] = 0
    return x.take(np.minimum(mirrored, given - 1), x.rank - 2) * _constant(x, signs[:, :parts])


def _transformed(x: Tensor, length: int, columns: int, *, inverse: bool = False) -> Tensor:
    """The first `columns` elements of the transform of x[…,rows,1 or 2], zeros behind the rows up
    to its `length`: [...,columns,2]. NotApplicable where a matrix would be too large.

    A length that is a product is transformed in two steps, each along one of its factors, with a
    rotation in between. Source: Cooley and Tukey, An Algorithm for the Machine Calculation of
    Complex Fourier Series, 1965.
    """
    *lead, rows, parts = x.shape
    many = max(part for part in range(1, isqrt(length) + 1) if length % part == 0)
    if length <= _SHORT or many == 1:
        only_if(rows * parts * columns * 2 * np.dtype(x.dtype).itemsize <= FOLDED_BYTES)
        basis = _basis(length, rows, columns, inverse=inverse)[:, :parts]
        scaled = basis.reshape(rows * parts, columns * 2) / (length if inverse else 1)
        product = x.reshape((*lead, rows * parts)).emit("dense", _constant(x, scaled))
        return product.reshape((*lead, columns, 2))
    few, axis = length // many, len(lead)
    ahead, behind = (0,) * (axis + 2), (*(0,) * axis, length - rows, 0)
    x = x.padded(ahead, behind, 0.0, "constant") if rows < length else x
    x = _swapped(x.reshape((*lead, many, few, parts)), axis)
    x = _transformed(x, many, many, inverse=inverse)
    turn = _basis(length, few, many, inverse=inverse)
    same, other = (_constant(x, part.diagonal(0, 1, 3)) for part in (turn, turn[:, ::-1]))
    x = x * same + x.cut({axis + 2: slice(None, None, -1)}) * other
    wanted = -(-columns // many)
    x = _transformed(_swapped(x, axis), few, wanted, inverse=inverse)
    return _swapped(x, axis).reshape((*lead, wanted * many, 2)).cut({axis: slice(columns)})


def _basis(length: int, rows: int, columns: int, *, inverse: bool) -> Any:
    """What elements are multiplied with in results, in float64: [rows,2,columns,2], real and
    imaginary parts of both; not divided by the length."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    angles = (2 if inverse else -2) * np.pi / length * turns
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)


def _swapped(x: Tensor, axis: int) -> Tensor:
    """Two axes of x, the first of them given, in the other order."""
    return x.transpose([*range(axis), axis + 1, axis, *range(axis + 2, x.rank)])


def _constant(x: Tensor, values: Array) -> Tensor:
    """Numbers of the element type of x."""
    return x.builder.constant(np.ascontiguousarray(values.astype(np.dtype(x.dtype))))

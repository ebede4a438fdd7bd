"""Networks on 8-bit codes, written as ONNX Runtime's static quantization writes them.

Every operator works on dequantized tensors and its result is quantized again (the QDQ form).
Activations are `uint8`, weights `int8` of seven bits (`reduce_range`) with one scale per output
channel, biases `int32`; batch norms are folded before. An activation of both signs has the zero
point 128; where a ReLU was, the zero point is 0 and saturating does its work.

Scales of activations are powers of two and follow from the spread that the random weights give,
without running anything. So additions of dequantized values are exact in single precision, and
whatever order a runtime takes gives the same codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value

_MIDDLE = 128
_DEVIATIONS = 5.0  # of a value that no code is left for
_WEIGHT_LIMIT = 63  # seven bits: where pairs of products are summed in 16 bits, these fit
_EPSILON = 1e-5
_NORM_SQUARE = 13 / 12 * math.log(3)  # mean of scale² / variance, both even over 0.5 to 1.5
_NORM_SHIFT = 0.1
_LARGEST_OF_NINE = 2.56  # mean square of the largest of nine N(0, 1) values


@dataclass(frozen=True, slots=True)
class Codes:
    """A quantized tensor: value = (code - zero) * 2**power.

    `square` is the mean square that the values are expected to have; `parameters` are the scale
    and the zero point in the graph.
    """

    value: Value
    parameters: tuple[Value, Value]
    power: int
    zero: int
    square: float

    @property
    def channels(self) -> int:
        """Extent of axis 1."""
        return self.value.channels


class QuantizedBuilder:
    """Appends quantized operators to a graph.

    Weights and batch norms are those that `GraphBuilder` draws under the same names, so a network
    quantized here is the one in single precision of the same seed.
    """

    def __init__(self, graph: GraphBuilder) -> None:
        self.graph = graph

    def quantize(self, x: Value, square: float, *, signed: bool) -> Codes:
        """QuantizeLinear of values with the expected mean square `square`."""
        zero = _MIDDLE if signed else 0
        # of values that a ReLU halved, the spread before it counts
        spread = math.sqrt(square if signed else 2 * square)
        power = math.ceil(math.log2(_DEVIATIONS * spread / (255 - zero)))
        return self._coded(x, power, zero, square)

    def conv_norm(
        self, x: Codes, spec: Convolution, conv: str, norm: str, *, relu: bool = True
    ) -> Codes:
        """A convolution with the batch norm behind it folded in, and a ReLU."""
        g, path = self.graph, self.graph.path(norm)
        name, channels = g.path(conv), spec.channels
        shape = spec.weight_shape(x.channels)
        arrays = None
        if g.weights:
            weight = g.drawn_normal(f"{name}.weight", shape, spec.weight_std(x.channels))
            scale = g.drawn_uniform(f"{path}.weight", (channels,), 0.5, 1.5)
            shift = g.drawn_normal(f"{path}.bias", (channels,), _NORM_SHIFT)
            mean = g.drawn_normal(f"{path}.running_mean", (channels,), _NORM_SHIFT)
            variance = g.drawn_uniform(f"{path}.running_var", (channels,), 0.5, 1.5)
            factor: NDArray[Any] = scale / np.sqrt(variance + np.float32(_EPSILON))
            arrays = weight * factor.reshape(-1, 1, 1, 1), shift - mean * factor
        operands = self._weights(name, shape, arrays, x)
        result = g.convolve(self._decoded(x), spec, operands, conv)
        square = _NORM_SQUARE * (spec.gain * x.square + _NORM_SHIFT**2) + _NORM_SHIFT**2
        return self.quantize(result, square / 2 if relu else square, signed=not relu)

    def add_relu(self, a: Codes, b: Codes, name: str = "add") -> Codes:
        """max(a + b, 0)."""
        total = self.graph.add(self._decoded(a), self._decoded(b), name)
        square = sum(c.square if c.zero == 0 else c.square / 2 for c in (a, b))
        return self.quantize(total, square, signed=False)

    def max_pool(self, x: Codes, window: Pooling) -> Codes:
        """The largest value under a 3x3 window behind a ReLU, at the same scale."""
        pooled = self.graph.max_pool(self._decoded(x), window)
        return self._coded(pooled, x.power, x.zero, _LARGEST_OF_NINE * 2 * x.square)

    def global_average_pool(self, x: Codes) -> Codes:
        """The mean over height and width, at the same scale, without these axes."""
        mean = self.graph.global_average_pool(self._decoded(x))
        pooled = self._coded(mean, x.power, x.zero, x.square)
        flat = self.graph.flatten(self._decoded(pooled))
        return self._coded(flat, x.power, x.zero, x.square)

    def gemm(self, x: Codes, features: int, name: str = "fc") -> Codes:
        """A fully connected layer on [rows, columns], with weights [out, in]."""
        g, path = self.graph, self.graph.path(name)
        rows, columns = x.value.shape
        shape, arrays = (features, columns), None
        if g.weights:
            weight = g.drawn_normal(f"{path}.weight", shape, math.sqrt(1 / columns))
            arrays = weight, g.drawn_normal(f"{path}.bias", (features,), 0.05)
        inputs = [self._decoded(x), *self._weights(path, shape, arrays, x)]
        result = g.node("Gemm", inputs, (rows, features), name, transB=1)
        return self.quantize(result, x.square, signed=True)

    def output(self, x: Codes, name: str) -> Value:
        """Makes the dequantized tensor a graph output."""
        return self.graph.output(self._decoded(x), name)

    def _coded(self, x: Value, power: int, zero: int, square: float) -> Codes:
        """QuantizeLinear."""
        g = self.graph
        scale = g.parameter(f"{x.name}_scale", np.asarray(math.ldexp(1.0, power)), ())
        point = g.parameter(f"{x.name}_zero_point", np.asarray(zero), (), "uint8")
        name = self._short(x, "_quantized")
        codes = g.node("QuantizeLinear", [x, scale, point], x.shape, name)
        return Codes(codes, (scale, point), power, zero, square)

    def _decoded(self, x: Codes) -> Value:
        """DequantizeLinear."""
        name = self._short(x.value, "_dequantized").replace("_quantized", "", 1)
        inputs = [x.value, *x.parameters]
        return self.graph.node("DequantizeLinear", inputs, x.value.shape, name)

    def _short(self, x: Value, suffix: str) -> str:
        """A name for this scope from the last part of a tensor's name."""
        return x.name.rsplit(".", 1)[-1] + suffix

    def _weights(
        self,
        name: str,
        shape: tuple[int, ...],
        arrays: tuple[NDArray[Any], NDArray[Any]] | None,
        x: Codes,
    ) -> list[Value]:
        """Weights and bias as codes with their DequantizeLinear; none of the data for outlines."""
        channels = (shape[0],)
        parts: dict[str, NDArray[Any] | None] = dict.fromkeys(_PARTS)
        if arrays is not None:
            parts = dict(zip(_PARTS, _as_codes(*arrays, x.power), strict=True))
        stored = {
            part: self.graph.parameter(
                f"{name}.{part}", array, shape if part == "weight" else channels, _PARTS[part]
            )
            for part, array in parts.items()
        }
        operands: list[Value] = []
        zeros, ending = np.zeros(channels, np.int32), name.rsplit(".", 1)[-1]
        for part in ("weight", "bias"):
            zero = self.graph.parameter(f"{name}.{part}_zero_point", zeros, channels, _PARTS[part])
            operands.append(
                self.graph.node(
                    "DequantizeLinear",
                    [stored[part], stored[f"{part}_scale"], zero],
                    stored[part].shape,
                    f"{ending}_{part}_dequantized",
                    axis=0,
                )
            )
        return operands


_PARTS = {"weight": "int8", "weight_scale": "float32", "bias": "int32", "bias_scale": "float32"}


def _as_codes(weight: NDArray[Any], bias: NDArray[Any], power: int) -> tuple[NDArray[Any], ...]:
    """The arrays of `_PARTS`: weights symmetric per output channel, a bias at the sums' scale."""
    largest = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    scale = (largest / np.float32(_WEIGHT_LIMIT)).astype(np.float32)
    column = scale.reshape(-1, *(1,) * (weight.ndim - 1))
    sums_scale = scale * np.float32(math.ldexp(1.0, power))
    return np.rint(weight / column), scale, np.rint(bias / sums_scale), sums_scale

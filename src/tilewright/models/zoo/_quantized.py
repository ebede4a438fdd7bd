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

from tilewright.models.zoo._builder import (
    KEPT_OF_SUMS,
    Convolution,
    GraphBuilder,
    Pooling,
    Shape,
    norm_of,
)

_MIDDLE = 128
_DEVIATIONS = 5.0  # of a value that no code is left for
_WEIGHT_LIMIT = 63  # seven bits: where pairs of products are summed in 16 bits, these fit
_EPSILON = 1e-5
_MEANS_VARY = 0.1  # of the variance of values, what is left in their means over an image


@dataclass(frozen=True, slots=True)
class Codes:
    """A quantized tensor: value = (code - zero) * 2**power.

    `mean` and `variance` are those that the values are expected to have, before a ReLU;
    `parameters` are the scale and the zero point in the graph.
    """

    tensor: str
    parameters: tuple[str, str]
    power: int
    zero: int
    mean: float
    variance: float


class QuantizedBuilder:
    """Appends quantized operators to a graph: those of `GraphBuilder` under the same names.

    Weights and batch norms are those that `GraphBuilder` draws under the same names, so a network
    quantized here is the one in single precision of the same seed.
    """

    def __init__(self, graph: GraphBuilder) -> None:
        self.graph = graph

    def input(self, shape: Shape, name: str) -> Codes:
        """A float32 input, quantized as values from N(0, 1)."""
        return self._quantized(self.graph.input(shape, name=name), 0.0, 1.0, signed=True)

    def output(self, x: Codes, name: str) -> str:
        """Makes the dequantized tensor a graph output."""
        return self.graph.output(self._decoded(x), name)

    def conv_norm(self, x: Codes, spec: Convolution, name: str) -> Codes:
        """A convolution with the batch norm behind it folded in, and perhaps a ReLU."""
        g = self.graph
        conv, norm, *relu = name.split("+")
        weights, folded = g.path(conv), g.path(norm)
        shape = spec.weight_shape(g.shape(x.tensor)[1])
        weight = g.drawn_weights(f"{weights}.weight", shape, spec.gain, (1, 2, 3))
        scaled, shifted = norm_of(spec, bool(relu))
        scale, shift, mean, variance = g.drawn_norm(folded, spec.channels, scaled, shifted)
        factor: NDArray[Any] = scale / np.sqrt(variance + np.float32(_EPSILON))
        arrays = weight * factor.reshape(-1, 1, 1, 1), shift - mean * factor
        operands = self._weights(weights, *arrays, x)
        result = g.convolve(self._decoded(x), spec, operands, conv)
        return self._quantized(result, shifted, scaled**2, signed=not relu)

    def add_relu(self, a: Codes, b: Codes, name: str) -> Codes:
        """max(a + b, 0)."""
        total = self.graph.node("Add", self._decoded(a), self._decoded(b), name=name.split("+")[0])
        return self._quantized(total, a.mean + b.mean, a.variance + b.variance, signed=False)

    def max_pool(self, x: Codes, window: Pooling) -> Codes:
        """The largest value under a 3x3 window behind a ReLU, at the same scale."""
        pooled = self.graph.max_pool(self._decoded(x), window)
        return self._coded(pooled, x.power, x.zero, x.mean, x.variance)

    def global_average_pool(self, x: Codes) -> Codes:
        """The mean over height and width behind a ReLU."""
        mean = self.graph.global_average_pool(self._decoded(x))
        return self._quantized(mean, x.mean, _MEANS_VARY * x.variance, signed=False)

    def flatten(self, x: Codes) -> Codes:
        """Everything but the batch in one axis."""
        flat = self.graph.flatten(self._decoded(x))
        return self._coded(flat, x.power, x.zero, x.mean, x.variance)

    def gemm(self, x: Codes, features: int, gain: float = 1.0, name: str = "fc") -> Codes:
        """The fully connected layer behind the means of a network, with weights [out, in]."""
        g, path = self.graph, self.graph.path(name)
        shape = (features, g.shape(x.tensor)[1])
        weight = g.drawn_weights(f"{path}.weight", shape, gain, (1,), KEPT_OF_SUMS)
        bias = g.drawn_normal(f"{path}.bias", (features,), 0.05)
        operands = self._decoded(x), *self._weights(path, weight, bias, x)
        result = g.node("Gemm", *operands, name=name, transB=1)
        variance = gain * (x.variance + (KEPT_OF_SUMS * x.mean) ** 2)
        return self._quantized(result, 0.0, variance, signed=True)

    def _quantized(self, x: str, mean: float, variance: float, *, signed: bool) -> Codes:
        """QuantizeLinear of values with an expected mean and variance, less what a ReLU cuts."""
        zero = _MIDDLE if signed else 0
        largest = mean + _DEVIATIONS * math.sqrt(variance)
        power = math.ceil(math.log2(largest / (255 - zero)))
        return self._coded(x, power, zero, mean, variance)

    def _coded(self, x: str, power: int, zero: int, mean: float, variance: float) -> Codes:
        """QuantizeLinear."""
        g = self.graph
        scale = g.parameter(f"{x}_scale", np.asarray(math.ldexp(1.0, power)))
        point = g.parameter(f"{x}_zero_point", np.asarray(zero), "uint8")
        name = x.rpartition(".")[-1] + "_quantized"
        codes = g.node("QuantizeLinear", x, scale, point, name=name)
        return Codes(codes, (scale, point), power, zero, mean, variance)

    def _decoded(self, x: Codes) -> str:
        """DequantizeLinear."""
        name = x.tensor.rpartition(".")[-1].replace("_quantized", "") + "_dequantized"
        return self.graph.node("DequantizeLinear", x.tensor, *x.parameters, name=name)

    def _weights(self, name: str, weight: NDArray[Any], bias: NDArray[Any], x: Codes) -> list[str]:
        """Weights and bias as codes with their DequantizeLinear."""
        g = self.graph
        stored = {
            part: g.parameter(f"{name}.{part}", array, _PARTS[part])
            for part, array in zip(_PARTS, _as_codes(weight, bias, x.power), strict=True)
        }
        operands: list[str] = []
        zeros, ending = np.zeros(len(weight), np.int32), name.rsplit(".", 1)[-1]
        for part in ("weight", "bias"):
            zero = g.parameter(f"{name}.{part}_zero_point", zeros, _PARTS[part])
            inputs = stored[part], stored[f"{part}_scale"], zero
            label = f"{ending}_{part}_dequantized"
            operands.append(g.node("DequantizeLinear", *inputs, name=label, axis=0))
        return operands


_PARTS = {"weight": "int8", "weight_scale": "float32", "bias": "int32", "bias_scale": "float32"}


def _as_codes(weight: NDArray[Any], bias: NDArray[Any], power: int) -> tuple[NDArray[Any], ...]:
    """The arrays of `_PARTS`: weights symmetric per output channel, a bias at the sums' scale."""
    largest = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    scale = (largest / np.float32(_WEIGHT_LIMIT)).astype(np.float32)
    column = scale.reshape(-1, *(1,) * (weight.ndim - 1))
    sums_scale = scale * np.float32(math.ldexp(1.0, power))
    return np.rint(weight / column), scale, np.rint(bias / sums_scale), sums_scale

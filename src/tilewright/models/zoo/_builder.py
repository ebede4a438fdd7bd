"""Writes ONNX graphs node by node, with seeded random parameters and every shape known."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
from numpy.typing import ArrayLike, DTypeLike, NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.shape_inference import infer_node_outputs

OPSET = 17
_IR_VERSION = 8  # the file version that came with opset 17

Attribute: TypeAlias = int | float | str | Sequence[int]
Extent: TypeAlias = int | tuple[int, ...]
Padding: TypeAlias = Extent | Literal["same"]
Shape: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[int, ...]

NORM = ("weight", "bias", "running_mean", "running_var")
"""The parameters of a batch normalization."""
NORM_SHIFT = 1.0
"""The mean of its biases."""
_LASTING = 1.0
"""So many times the mean of each kernel over its places is added to it. What lasts over places, as
areas of an image do, then passes better than what differs between them, as rounding does."""
_DEPTHWISE_SUM = 0.75
"""Weights of each channel of a depthwise convolution sum to this: with 0 only edges would pass."""
KEPT_OF_SUMS = 0.5
"""So much of the sums of weights is left in fully connected layers: classes differ on average."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a 2-D convolution needs besides its input.

    `kernel` and `stride` are one extent or (height, width). `padding` is one extent,
    (height, width), (top, left, bottom, right), or `same`, TensorFlow's: one output for each
    stride, and of an odd number the larger half at the bottom and right. The variance of the random
    weights is `gain` / fan-in, which is of no matter before a batch normalization. Between ReLUs
    the default keeps the scale of activations where biases have the mean `shift` = 1, as batch
    normalizations do: the ReLU of N(1, 1) has a variance of 1 / 1.33.
    """

    channels: int
    kernel: Extent = 1
    stride: Extent = 1
    padding: Padding = 0
    groups: int = 1
    bias: bool = False
    gain: float = 1.33
    shift: float = 0.0

    def weight_shape(self, channels: int) -> Shape:
        """[out, in / groups, height, width] for an input of so many channels."""
        return (self.channels, channels // self.groups, *_pair(self.kernel))


@dataclass(frozen=True, slots=True)
class Pooling:
    """A pooling window. `ceil` rounds the output extents up, as PyTorch's `ceil_mode`."""

    kernel: Extent
    stride: Extent = 1
    padding: Padding = 0
    ceil: bool = False
    count_padding: bool = True


def norm_of(spec: Convolution, relu: bool) -> tuple[float, float]:
    """The scale and shift of the batch normalization behind a convolution."""
    scale = 1.0 if relu else math.sqrt(spec.gain)
    return scale, scale * NORM_SHIFT


def _pair(extent: Extent) -> tuple[int, int]:
    height, width = (extent, extent) if isinstance(extent, int) else extent
    return height, width


def _window(shape: Shape, window: Convolution | Pooling) -> dict[str, Attribute]:
    """Attributes of a window that slides over an NCHW tensor; pads at top, left, bottom, right."""
    kernel, stride, pads = _pair(window.kernel), _pair(window.stride), window.padding
    if pads == "same":
        axes = zip(shape[2:], kernel, stride, strict=True)
        totals = [max((extent - 1) // s * s + k - extent, 0) for extent, k, s in axes]
        pads = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
    elif isinstance(pads, int):
        pads = (pads,) * 4
    ceil = {"ceil_mode": int(window.ceil)} if isinstance(window, Pooling) else {}
    return {
        "kernel_shape": kernel,
        "pads": pads if len(pads) == 4 else pads * 2,
        "strides": stride,
        **ceil,
    }


class GraphBuilder:
    """Appends nodes and parameters with readable, unique names; tensors go by their names.

    Nodes are named by their place in the network, for example `layer1.0.conv2`; a node's first
    output has the node's name. Initializers are the parameters and the running statistics of
    batch normalization, `layer1.0.bn2.weight` and `layer1.0.bn2.running_var`, as in an exported
    PyTorch state; everything else that is fixed is a Constant node. An initializer's values
    depend on the seed and its own name alone, running statistics also on `variances`: of what
    each batch normalization reads, in the order of building, measured on images.

    Weights of most layers sum to 0 over what each of their results reads: what all activations have
    in common, a mean that is not 0 after ReLU, says nothing about an input and would drown what
    does (Brock et al., "Characterizing signal propagation", 2021, section 4).

    `model` is finished once the network has declared its outputs.
    """

    def __init__(
        self, name: str, *, batch: int = 1, seed: int = 0, variances: Sequence[float] = ()
    ) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self.batch = batch
        self._seed = seed
        self._variances = iter(variances)
        self.scopes: list[str] = []
        self._taken: set[str] = set()
        self._types: dict[str, onnx.TypeProto] = {}
        self._constants: dict[str, TensorProto] = {}
        self.model = helper.make_model(
            helper.make_graph([], name, [], []),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name="tilewright",
        )
        self._graph = self.model.graph  # filled in place: messages are copied when assigned

    def shape(self, tensor: str) -> Shape:
        """Its full shape, batch included."""
        return tuple(d.dim_value for d in self._types[tensor].tensor_type.shape.dim)

    # Names

    @contextmanager
    def scope(self, name: str | None) -> Generator[None]:
        """Prefixes the names given inside with `name`, if there is one, and a dot."""
        before = len(self.scopes)
        if name:
            self.scopes.append(name)
        yield
        del self.scopes[before:]

    def path(self, name: str) -> str:
        """The full path of a name given here."""
        return ".".join((*self.scopes, name))

    def _claim(self, name: str) -> str:
        path = candidate = self.path(name)
        count = 0
        while candidate in self._taken:
            count += 1
            candidate = f"{path}_{count}"
        self._taken.add(candidate)
        return candidate

    # The graph's ends

    def input(self, shape: Shape, *, integer: bool = False, name: str) -> str:
        """Declares a graph input of `shape` per batch item: float32, or int64 if `integer`."""
        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        info = helper.make_tensor_value_info(self._claim(name), kind, (self.batch, *shape))
        self._graph.input.append(info)
        self._types[info.name] = info.type
        return info.name

    def output(self, tensor: str, name: str) -> str:
        """Makes the tensor just computed a graph output, renamed to `name`.

        Returns the new name, for later nodes to read.
        """
        node = self._graph.node[-1]
        if list(node.output) != [tensor]:
            raise ValueError(f"{tensor} is not the output of the last node, {node.name}")
        node.output[0] = renamed = self._claim(name)
        self._types[renamed] = self._types[tensor]
        self._graph.output.append(helper.make_value_info(renamed, self._types[renamed]))
        return renamed

    # Parameters

    def parameter(self, path: str, array: NDArray[Any], dtype: str = "float32") -> str:
        """An initializer of known values."""
        tensor = numpy_helper.from_array(array.astype(dtype, copy=False), path)
        self._graph.initializer.append(tensor)
        self._taken.add(path)
        self._types[path] = helper.make_tensor_type_proto(tensor.data_type, array.shape)
        return path

    def drawn_normal(self, path: str, shape: Shape, std: float, mean: float = 0.0) -> NDArray[Any]:
        """What `normal` stores under this full path."""
        array = self._generator(path).standard_normal(shape, dtype=np.float32)
        array *= np.float32(std)
        if mean:
            array += np.float32(mean)
        return array

    def drawn_uniform(self, path: str, shape: Shape, low: float, high: float) -> NDArray[Any]:
        """What `uniform` stores under this full path."""
        array = self._generator(path).random(shape, dtype=np.float32)
        array *= np.float32(high - low)
        array += np.float32(low)
        return array

    def _generator(self, path: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed}:{path}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "little"))

    def normal(self, shape: Shape, std: float, mean: float = 0.0, *, name: str) -> str:
        """A parameter drawn from a normal distribution."""
        path = self.path(name)
        return self.parameter(path, self.drawn_normal(path, shape, std, mean))

    def drawn_weights(
        self, path: str, shape: Shape, gain: float, axes: Axes, kept: float = 0.0
    ) -> NDArray[Any]:
        """What `weights_of` stores under this full path."""
        fan_in, places = math.prod(shape[axis] for axis in axes), math.prod(shape[2:])
        lasting = _LASTING if places > 1 and shape[1] > 1 else 0.0
        power = 1.0 + ((1.0 + lasting) ** 2 - 1.0) / places
        array = self.drawn_normal(path, shape, math.sqrt(gain / fan_in / power))
        if lasting:
            array += np.float32(lasting) * array.mean(axis=(2, 3), keepdims=True)
        array -= np.float32(1.0 - kept) * array.mean(axis=axes, keepdims=True)
        if fan_in == places:
            array += np.float32(_DEPTHWISE_SUM / places)
        return array

    def weights_of(
        self, shape: Shape, gain: float = 1.0, axes: Axes = (1,), kept: float = 0.0, *, name: str
    ) -> str:
        """A parameter of variance `gain` / fan-in whose sums over `axes`, the fan-in, are 0, or the
        part `kept` of what they would be. Those of a depthwise convolution are `_DEPTHWISE_SUM`."""
        path = self.path(name)
        return self.parameter(path, self.drawn_weights(path, shape, gain, axes, kept))

    def next_variance(self) -> float:
        """That of what the next batch normalization reads; 1 where none was measured."""
        return next(self._variances, 1.0)

    def drawn_norm(
        self, path: str, channels: int, scale: float = 1.0, shift: float = NORM_SHIFT
    ) -> tuple[NDArray[Any], ...]:
        """The arrays of `NORM` for the next batch normalization, whose results are nearly
        N(shift, scale**2). Before a ReLU the mean is 1, so that most values pass: with 0 each layer
        would make a difference between inputs, noise too, 1.5 times as large in power, with 1 it is
        1.1 times."""
        variance, shape = self.next_variance(), (channels,)
        mean = self.drawn_normal(f"{path}.running_mean", shape, 0.05)
        spread = self.drawn_uniform(f"{path}.running_var", shape, 0.8, 1.2)
        return (
            self.drawn_uniform(f"{path}.weight", shape, 0.9 * scale, 1.1 * scale),
            self.drawn_normal(f"{path}.bias", shape, 0.05 * scale, shift),
            mean * np.float32(math.sqrt(variance)),
            spread * np.float32(variance),
        )

    # Constants

    def constant(
        self, values: ArrayLike, dtype: DTypeLike = np.float32, name: str = "constant"
    ) -> str:
        """A Constant node: a number, or a vector such as a shape, axes or bounds."""
        name = self._claim(name)
        self._constants[name] = tensor = numpy_helper.from_array(np.asarray(values, dtype), name)
        return self._append(helper.make_node("Constant", [], [name], name=name, value=tensor))[0]

    def full(self, shape: Shape, number: float, dtype: DTypeLike, name: str) -> str:
        """One number everywhere."""
        return self.constant(np.full(shape, number), dtype, name)

    def positions(self, count: int, name: str) -> str:
        """0, 1, 2 and so on as int64 of [1, count]."""
        return self.constant(np.arange(count)[None], np.int64, name)

    def lower_triangle(self, count: int, name: str) -> str:
        """The mask that lets each position see itself and those before: [1, 1, count, count]."""
        return self.constant(np.tril(np.ones((1, 1, count, count))), np.bool_, name)

    def anchors(self, axis: int, name: str) -> str:
        """A column of SSD's anchor boxes: [1, anchors, 1]."""
        return self.constant(ssd_anchors()[None, :, axis : axis + 1], name=name)

    # Nodes

    def node(self, kind: str, *inputs: str | float, name: str = "", **attributes: Attribute) -> str:
        """Appends a node of ONNX operator `kind` with one output; numbers become constants."""
        operands = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        path = self._claim(name or kind.lower())
        node = helper.make_node(kind, operands, [path], name=path)
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in sorted(attributes.items())
        )
        return self._append(node)[0]

    def _append(self, node: onnx.NodeProto) -> list[str]:
        self._graph.node.append(node)
        self._types |= infer_node_outputs(
            onnx.defs.get_schema(node.op_type, OPSET),
            node,
            {name: self._types[name] for name in node.input},
            {name: self._constants[name] for name in node.input if name in self._constants},
            opset_imports=[*self.model.opset_import],
            ir_version=_IR_VERSION,
        )
        return list(node.output)

    def split(self, x: str, parts: int, axis: int, name: str = "split") -> list[str]:
        """Cuts an axis into equal parts."""
        path = self._claim(name)
        size, rest = divmod(self.shape(x)[axis], parts)
        if rest:
            raise ValueError(f"axis of {size * parts + rest} does not split into equal parts")
        sizes = self.constant([size] * parts, np.int64, f"{name}_sizes")
        names = [f"{path}.{part}" for part in range(parts)]
        return self._append(helper.make_node("Split", [x, sizes], names, name=path, axis=axis))

    def reshape(self, x: str, shape: Shape, name: str = "reshape") -> str:
        """The same elements in another shape, batch included."""
        return self.node("Reshape", x, self.constant(shape, np.int64, f"{name}_shape"), name=name)

    def flatten(self, x: str, name: str = "flatten") -> str:
        """Everything but the batch in one axis."""
        return self.node("Flatten", x, name=name, axis=1)

    def conv(self, x: str, spec: Convolution, name: str = "conv") -> str:
        """A 2-D convolution over NCHW, with weights [out, in / groups, height, width]."""
        shape = spec.weight_shape(self.shape(x)[1])
        operands = [self.weights_of(shape, spec.gain, (1, 2, 3), name=f"{name}.weight")]
        if spec.bias:
            operands.append(self.normal((spec.channels,), 0.05, spec.shift, name=f"{name}.bias"))
        return self.convolve(x, spec, operands, name)

    def convolve(self, x: str, spec: Convolution, operands: Sequence[str], name: str) -> str:
        """A 2-D convolution with weights, and perhaps a bias, that are there already."""
        attributes = _window(self.shape(x), spec) | {"dilations": (1, 1), "group": spec.groups}
        return self.node("Conv", x, *operands, name=name, **attributes)

    def depthwise(self, x: str, window: Pooling, name: str) -> str:
        """A convolution of every channel by itself, one output for each."""
        channels = self.shape(x)[1]
        spec = Convolution(channels, window.kernel, window.stride, window.padding, groups=channels)
        return self.conv(x, spec, name)

    def norm(
        self,
        x: str,
        epsilon: float = 1e-5,
        scale: float = 1.0,
        shift: float = NORM_SHIFT,
        name: str = "bn",
    ) -> str:
        """Batch normalization in inference form, see `drawn_norm`."""
        path = self.path(name)
        arrays = self.drawn_norm(path, self.shape(x)[1], scale, shift)
        operands = [
            self.parameter(f"{path}.{part}", array)
            for part, array in zip(NORM, arrays, strict=True)
        ]
        return self.node(
            "BatchNormalization", x, *operands, name=name, epsilon=epsilon, momentum=0.9
        )

    def conv_norm(self, x: str, spec: Convolution, name: str) -> str:
        """A convolution, a batch normalization and perhaps a ReLU: `conv1+bn1+relu` names them.
        Where no ReLU follows, results have the variance `gain`: it damps a residual branch."""
        conv, norm, *relu = name.split("+")
        y = self.norm(self.conv(x, spec, conv), 1e-5, *norm_of(spec, bool(relu)), name=norm)
        return self.node("Relu", y, name=relu[0]) if relu else y

    def add_relu(self, a: str, b: str, name: str) -> str:
        """max(a + b, 0); `add+relu` names both."""
        add, relu = name.split("+")
        return self.node("Relu", self.node("Add", a, b, name=add), name=relu)

    def max_pool(self, x: str, window: Pooling, name: str = "maxpool") -> str:
        """The largest value under a sliding window."""
        return self.node("MaxPool", x, name=name, **_window(self.shape(x), window))

    def average_pool(self, x: str, window: Pooling, name: str = "avgpool") -> str:
        """The mean under a sliding window."""
        counted, attributes = int(window.count_padding), _window(self.shape(x), window)
        return self.node("AveragePool", x, name=name, count_include_pad=counted, **attributes)

    def global_average_pool(self, x: str, name: str = "avgpool") -> str:
        """The mean over height and width, which stay as axes of extent 1."""
        return self.node("GlobalAveragePool", x, name=name)

    def gemm(self, x: str, features: int, gain: float = 1.0, name: str = "fc") -> str:
        """A fully connected layer on [rows, columns], with weights [out, in] as in PyTorch."""
        _, columns = self.shape(x)
        weight = self.weights_of(
            (features, columns), gain, kept=KEPT_OF_SUMS, name=f"{name}.weight"
        )
        bias = self.normal((features,), 0.05, name=f"{name}.bias")
        return self.node("Gemm", x, weight, bias, name=name, transB=1)

    def linear(self, x: str, features: int, gain: float = 1.0, *, name: str) -> str:
        """A linear layer on [batch, sequence, in]: MatMul with weights [in, out], then Add."""
        width = self.shape(x)[-1]
        weight = self.weights_of((width, features), gain, (0,), name=f"{name}.weight")
        bias = self.normal((features,), 0.02, name=f"{name}.bias")
        product = self.node("MatMul", x, weight, name=f"{name}.matmul")
        return self.node("Add", product, bias, name=f"{name}.add")

    def layer_norm(self, x: str, epsilon: float, name: str) -> str:
        """Normalization over the last axis, as the operator of opset 17."""
        shape = self.shape(x)[-1:]
        scale = self.normal(shape, 0.05, mean=1.0, name=f"{name}.weight")
        shift = self.normal(shape, 0.05, name=f"{name}.bias")
        return self.node("LayerNormalization", x, scale, shift, name=name, axis=-1, epsilon=epsilon)


_FEW = (1.0, 2.0, 0.5)
_MANY = (*_FEW, 3.0, 1.0 / 3.0)
_SCALES = (  # pixels between places, the own size and that of the next scale, aspect ratios
    (16, 51.2, 102.4, _FEW),
    (32, 102.4, 189.4, _MANY),
    (64, 189.4, 276.4, _MANY),
    (128, 276.4, 363.52, _MANY),
    (256, 363.52, 450.6, _FEW),
    (512, 450.6, 492.0, _FEW),
)


def ssd_anchors() -> NDArray[np.float32]:
    """The anchor boxes as (center x, center y, width, height) in pixels: [6132, 4].

    Per place first the scale's own size, then the geometric mean with the next scale's size,
    both square, then the own size at the other aspect ratios (paper, section 2.2).
    """
    parts: list[NDArray[np.floating]] = []
    for step, size, larger, ratios in _SCALES:
        roots = np.sqrt(np.array(ratios[1:]))
        mean = np.sqrt(size * larger)
        widths = np.concatenate([[size, mean], size * roots])
        heights = np.concatenate([[size, mean], size / roots])
        centers = (np.arange(512 // step) + 0.5) * step
        grid_y, grid_x, index = np.meshgrid(centers, centers, np.arange(len(widths)), indexing="ij")
        boxes = np.stack([grid_x, grid_y, widths[index], heights[index]], axis=-1)
        parts.append(boxes.reshape(-1, 4))
    return np.concatenate(parts).astype(np.float32)

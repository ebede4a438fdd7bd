"""Writes ONNX graphs node by node, with seeded random parameters and every shape known."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

OPSET = 17
_IR_VERSION = 8  # the file version that came with opset 17

Attribute: TypeAlias = int | float | str | Sequence[int]
Extent: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """An edge of the graph: its name and its full shape, batch included."""

    name: str
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Extent of axis 1, the channels of an NCHW tensor."""
        return self.shape[1]


@dataclass(frozen=True, slots=True)
class Convolution:
    """What a 2-D convolution needs besides its input.

    `kernel` and `stride` are one extent or (height, width). `padding` is one extent,
    (height, width) or (top, left, bottom, right). The variance of the random weights is `gain` /
    fan-in. After a ReLU a gain of 2 keeps the scale of activations (He et al., "Delving Deep into
    Rectifiers", 2015, eq. 10); the default is lower by what the zoo's random batch normalization
    adds, 13/12 * ln 3 = 1.19 of variance per layer. Where no ReLU comes before, 1 does.
    """

    channels: int
    kernel: Extent = 1
    stride: Extent = 1
    padding: Extent = 0
    groups: int = 1
    bias: bool = False
    gain: float = 1.7

    def weight_shape(self, channels: int) -> tuple[int, ...]:
        """[out, in / groups, height, width] for an input of so many channels."""
        return (self.channels, channels // self.groups, *_pair(self.kernel))

    def weight_std(self, channels: int) -> float:
        """Standard deviation of the random weights for an input of so many channels."""
        return math.sqrt(self.gain / math.prod(self.weight_shape(channels)[1:]))


@dataclass(frozen=True, slots=True)
class Pooling:
    """A pooling window. `ceil` rounds the output extents up, as PyTorch's `ceil_mode`."""

    kernel: Extent
    stride: Extent = 1
    padding: Extent = 0
    ceil: bool = False
    count_padding: bool = True


def _pair(extent: Extent) -> tuple[int, int]:
    if isinstance(extent, int):
        return extent, extent
    height, width = extent
    return height, width


def _pads(padding: Extent) -> tuple[int, int, int, int]:
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    top, left, bottom, right = padding
    return top, left, bottom, right


def _swept(x: Value, window: Convolution | Pooling, *, ceil: bool = False) -> tuple[int, int]:
    """Output height and width of a window that slides over an NCHW tensor."""
    top, left, bottom, right = _pads(window.padding)
    room = (x.shape[2] + top + bottom, x.shape[3] + left + right)
    kernel, stride = _pair(window.kernel), _pair(window.stride)
    steps = [(r - k) / s for r, k, s in zip(room, kernel, stride, strict=True)]
    height, width = (math.ceil(step) if ceil else math.floor(step) for step in steps)
    return height + 1, width + 1


def _empty_model(name: str) -> onnx.ModelProto:
    from onnx import helper

    return helper.make_model(
        helper.make_graph([], name, [], []),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="tilewright",
    )


class GraphBuilder:
    """Appends nodes and parameters with readable, unique names.

    Nodes are named by their place in the network, for example `layer1.0.conv2`; a node's first
    output has the node's name. Initializers are the parameters and the running statistics of
    batch normalization, `layer1.0.bn2.weight` and `layer1.0.bn2.running_var`, as in an exported
    PyTorch state; everything else that is fixed is a Constant node. An initializer's values
    depend on the seed and its own name alone.

    With `weights=False` the parameters carry shapes and no data (they claim to lie in an external
    file): enough for shape inference, at no cost.
    """

    def __init__(self, name: str, *, batch: int = 1, seed: int = 0, weights: bool = True) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self.name = name
        self.batch = batch
        self._seed = seed
        self.weights = weights
        self._scopes: list[str] = []
        self._taken: set[str] = set()
        self._model = _empty_model(name)
        self._graph = self._model.graph  # filled in place: messages are copied when assigned

    # Names

    @contextmanager
    def scope(self, name: str) -> Generator[None, None, None]:
        """Prefixes the names given inside with `name` and a dot."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def _claim(self, name: str) -> str:
        path = ".".join((*self._scopes, name))
        candidate, count = path, 0
        while candidate in self._taken:
            count += 1
            candidate = f"{path}_{count}"
        self._taken.add(candidate)
        return candidate

    # The graph's ends

    def input(self, name: str, shape: tuple[int, ...], *, integer: bool = False) -> Value:
        """Declares a graph input of `shape` per batch item: float32, or int64 if `integer`."""
        from onnx import TensorProto, helper

        value = Value(self._claim(name), (self.batch, *shape))
        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self._graph.input.append(helper.make_tensor_value_info(value.name, kind, value.shape))
        return value

    def output(self, value: Value, name: str) -> Value:
        """Makes the value just computed a graph output, renamed to `name`.

        Returns the renamed value, for later nodes to read.
        """
        from onnx import TensorProto, helper

        node = self._graph.node[-1]
        if list(node.output) != [value.name]:
            raise ValueError(f"{value.name} is not the output of the last node, {node.name}")
        renamed = Value(self._claim(name), value.shape)
        node.output[0] = renamed.name
        info = helper.make_tensor_value_info(renamed.name, TensorProto.FLOAT, renamed.shape)
        self._graph.output.append(info)
        return renamed

    def model(self) -> onnx.ModelProto:
        """The model, finished once the network has declared its outputs."""
        return self._model

    # Parameters and constants

    def parameter(
        self, name: str, array: NDArray[Any] | None, shape: tuple[int, ...], dtype: str = "float32"
    ) -> Value:
        """An initializer of known values; without them it only claims to lie in a file."""
        from onnx import TensorProto, helper

        tensor = self._graph.initializer.add()
        tensor.name = name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        tensor.dims.extend(shape)
        if array is None:
            tensor.data_location = TensorProto.EXTERNAL
        else:
            tensor.raw_data = array.astype(dtype, copy=False).tobytes()
        self._taken.add(name)
        return Value(name, shape)

    def path(self, name: str) -> str:
        """The full path of a name given here."""
        return ".".join((*self._scopes, name))

    def drawn_normal(self, name: str, shape: tuple[int, ...], std: float) -> NDArray[Any]:
        """What `normal` stores under this full path, of mean 0."""
        array = self._generator(name).standard_normal(shape, dtype=np.float32)
        array *= np.float32(std)
        return array

    def drawn_uniform(
        self, name: str, shape: tuple[int, ...], low: float, high: float
    ) -> NDArray[Any]:
        """What `uniform` stores under this full path."""
        array = self._generator(name).random(shape, dtype=np.float32)
        array *= np.float32(high - low)
        array += np.float32(low)
        return array

    def _generator(self, name: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:16], "little"))

    def normal(self, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Value:
        """A parameter drawn from a normal distribution. `name` is its full path."""
        array = self.drawn_normal(name, shape, std) if self.weights else None
        if array is not None and mean:
            array += np.float32(mean)
        return self.parameter(name, array, shape)

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> Value:
        """A parameter drawn from a uniform distribution. `name` is its full path."""
        array = self.drawn_uniform(name, shape, low, high) if self.weights else None
        return self.parameter(name, array, shape)

    def constant(self, array: NDArray[Any], name: str = "constant") -> Value:
        """A Constant node."""
        from onnx import helper, numpy_helper

        name = self._claim(name)
        tensor = numpy_helper.from_array(array, name)
        self._graph.node.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        return Value(name, tuple(array.shape))

    def integers(self, values: Sequence[int], name: str = "shape") -> Value:
        """A Constant node that holds a vector of int64: a shape, axes or bounds."""
        return self.constant(np.array(values, dtype=np.int64), name)

    def scalar(self, number: float, name: str = "constant") -> Value:
        """A Constant node that holds one float32."""
        return self.constant(np.array(number, dtype=np.float32), name)

    # Nodes

    def node(
        self,
        kind: str,
        inputs: Sequence[Value],
        shape: tuple[int, ...],
        name: str = "",
        **attributes: Attribute,
    ) -> Value:
        """Appends a node of ONNX operator `kind` with one output of `shape`."""
        from onnx import helper

        path = self._claim(name or kind.lower())
        names = [value.name for value in inputs]
        node = helper.make_node(kind, names, [path], name=path)
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in sorted(attributes.items())
        )
        self._graph.node.append(node)
        return Value(path, shape)

    def split(self, x: Value, parts: int, axis: int, name: str = "split") -> list[Value]:
        """Cuts an axis into equal parts."""
        from onnx import helper

        path = self._claim(name)
        size, rest = divmod(x.shape[axis], parts)
        if rest:
            raise ValueError(f"axis of {x.shape[axis]} does not split into {parts} equal parts")
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        sizes = self.integers([size] * parts, f"{name}_sizes")
        values = [Value(f"{path}.{part}", shape) for part in range(parts)]
        names = [value.name for value in values]
        inputs = [x.name, sizes.name]
        self._graph.node.append(helper.make_node("Split", inputs, names, name=path, axis=axis))
        return values

    def unary(self, kind: str, x: Value, name: str = "") -> Value:
        """An elementwise operator of one input."""
        return self.node(kind, [x], x.shape, name)

    def relu(self, x: Value, name: str = "relu") -> Value:
        """max(x, 0)."""
        return self.unary("Relu", x, name)

    def binary(self, kind: str, a: Value, b: Value | float, name: str = "") -> Value:
        """An elementwise operator of two inputs with broadcasting; a number is a Constant node."""
        if not isinstance(b, Value):
            b = self.scalar(b)
        return self.node(kind, [a, b], np.broadcast_shapes(a.shape, b.shape), name)

    def add(self, a: Value, b: Value | float, name: str = "add") -> Value:
        """a + b."""
        return self.binary("Add", a, b, name)

    def multiply(self, a: Value, b: Value | float, name: str = "mul") -> Value:
        """a * b, elementwise."""
        return self.binary("Mul", a, b, name)

    def conv(self, x: Value, spec: Convolution, name: str = "conv") -> Value:
        """A 2-D convolution over NCHW, with weights [out, in / groups, height, width]."""
        path = self.path(name)
        shape = spec.weight_shape(x.channels)
        std = spec.weight_std(x.channels)
        inputs = [self.normal(f"{path}.weight", shape, std)]
        if spec.bias:
            inputs.append(self.normal(f"{path}.bias", (spec.channels,), 0.05))
        return self.convolve(x, spec, inputs, name)

    def convolve(
        self, x: Value, spec: Convolution, operands: Sequence[Value], name: str = "conv"
    ) -> Value:
        """A 2-D convolution with weights, and perhaps a bias, that are there already."""
        return self.node(
            "Conv",
            [x, *operands],
            (x.shape[0], spec.channels, *_swept(x, spec)),
            name,
            dilations=[1, 1],
            group=spec.groups,
            kernel_shape=_pair(spec.kernel),
            pads=_pads(spec.padding),
            strides=_pair(spec.stride),
        )

    def batch_norm(self, x: Value, name: str = "bn", epsilon: float = 1e-5) -> Value:
        """Batch normalization in inference form, with statistics far from the identity."""
        path = ".".join((*self._scopes, name))
        shape = (x.channels,)
        scale = self.uniform(f"{path}.weight", shape, 0.5, 1.5)
        shift = self.normal(f"{path}.bias", shape, 0.1)
        mean = self.normal(f"{path}.running_mean", shape, 0.1)
        variance = self.uniform(f"{path}.running_var", shape, 0.5, 1.5)
        inputs = [x, scale, shift, mean, variance]
        return self.node("BatchNormalization", inputs, x.shape, name, epsilon=epsilon, momentum=0.9)

    def conv_bn_relu(self, x: Value, spec: Convolution, name: str, epsilon: float = 1e-5) -> Value:
        """`name.conv`, `name.bn` and `name.relu` in a row."""
        with self.scope(name):
            return self.relu(self.batch_norm(self.conv(x, spec), epsilon=epsilon))

    def max_pool(self, x: Value, window: Pooling, name: str = "maxpool") -> Value:
        """The largest value under a sliding window."""
        shape = (*x.shape[:2], *_swept(x, window, ceil=window.ceil))
        return self.node(
            "MaxPool",
            [x],
            shape,
            name,
            ceil_mode=int(window.ceil),
            kernel_shape=_pair(window.kernel),
            pads=_pads(window.padding),
            strides=_pair(window.stride),
        )

    def average_pool(self, x: Value, window: Pooling, name: str = "avgpool") -> Value:
        """The mean under a sliding window."""
        shape = (*x.shape[:2], *_swept(x, window, ceil=window.ceil))
        return self.node(
            "AveragePool",
            [x],
            shape,
            name,
            ceil_mode=int(window.ceil),
            count_include_pad=int(window.count_padding),
            kernel_shape=_pair(window.kernel),
            pads=_pads(window.padding),
            strides=_pair(window.stride),
        )

    def global_average_pool(self, x: Value, name: str = "avgpool") -> Value:
        """The mean over height and width, which stay as axes of extent 1."""
        return self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1), name)

    def flatten(self, x: Value, name: str = "flatten") -> Value:
        """Everything but the batch in one axis."""
        return self.node("Flatten", [x], (x.shape[0], math.prod(x.shape[1:])), name, axis=1)

    def concat(self, values: Sequence[Value], axis: int = 1, name: str = "concat") -> Value:
        """Values joined along `axis`, counted from the front."""
        first = values[0].shape
        extent = sum(value.shape[axis] for value in values)
        shape = (*first[:axis], extent, *first[axis + 1 :])
        return self.node("Concat", values, shape, name, axis=axis)

    def reshape(self, x: Value, shape: tuple[int, ...], name: str = "reshape") -> Value:
        """The same elements in another shape, batch included."""
        return self.node("Reshape", [x, self.integers(shape, f"{name}_shape")], shape, name)

    def transpose(self, x: Value, order: tuple[int, ...], name: str = "transpose") -> Value:
        """Axes reordered: output axis i is input axis `order[i]`."""
        shape = tuple(x.shape[axis] for axis in order)
        return self.node("Transpose", [x], shape, name, perm=order)

    def gather(self, x: Value, index: Value, axis: int = 0, name: str = "gather") -> Value:
        """Slices of `x` along `axis` picked by `index`; a scalar index drops the axis."""
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        return self.node("Gather", [x, index], shape, name, axis=axis)

    def matmul(self, a: Value, b: Value, name: str = "matmul") -> Value:
        """The matrix product over the last two axes, with broadcasting over the others."""
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.node("MatMul", [a, b], (*lead, a.shape[-2], b.shape[-1]), name)

    def gemm(self, x: Value, features: int, name: str = "fc", gain: float = 1.0) -> Value:
        """A fully connected layer on [rows, columns], with weights [out, in] as in PyTorch."""
        path = ".".join((*self._scopes, name))
        rows, columns = x.shape
        weight = self.normal(f"{path}.weight", (features, columns), math.sqrt(gain / columns))
        bias = self.normal(f"{path}.bias", (features,), 0.05)
        return self.node("Gemm", [x, weight, bias], (rows, features), name, transB=1)

    def softmax(self, x: Value, name: str = "softmax") -> Value:
        """Softmax over the last axis."""
        return self.node("Softmax", [x], x.shape, name, axis=-1)

"""NASNet-A: cells found by architecture search, each a small graph of separable convolutions."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value
from tilewright.models.zoo._entry import ZooEntry

_EPSILON = 1e-3
_GAIN = 0.7  # below He's 2: sums of branches would grow from cell to cell


def _same(extent: int, kernel: int, stride: int) -> tuple[int, int, int, int]:
    """TensorFlow's `same` padding of a square input: the odd one goes to the bottom and right."""
    outputs = -(-extent // stride)
    total = max((outputs - 1) * stride + kernel - extent, 0)
    return total // 2, total // 2, total - total // 2, total - total // 2


def _norm(g: GraphBuilder, x: Value, name: str) -> Value:
    return g.batch_norm(x, name, _EPSILON)


def _separable(
    g: GraphBuilder, x: Value, filters: int, kernel: int, stride: int, name: str
) -> Value:
    """ReLU, depthwise and 1x1 convolution, batch normalization; twice, the stride in the first."""
    with g.scope(name):
        for index, step in ((1, stride), (2, 1)):
            padding = _same(x.shape[2], kernel, step)
            depthwise = Convolution(x.channels, kernel, step, padding, groups=x.channels)
            x = g.conv(g.relu(x), depthwise, f"separable_{index}.depthwise")
            x = g.conv(x, Convolution(filters, gain=_GAIN), f"separable_{index}.pointwise")
            x = _norm(g, x, f"separable_{index}.bn")
    return x


def _average(g: GraphBuilder, x: Value, stride: int, name: str) -> Value:
    padding = _same(x.shape[2], 3, stride)
    return g.average_pool(x, Pooling(3, stride, padding, count_padding=False), name)


def _max(g: GraphBuilder, x: Value, name: str) -> Value:
    return g.max_pool(x, Pooling(3, 2, _same(x.shape[2], 3, 2)), name)


def _shifted(g: GraphBuilder, x: Value) -> Value:
    """The image moved by one pixel up and left, with zeros entering at the far edges."""
    batch, channels, height, width = x.shape
    pads = g.integers([0, 0, 0, 0, 0, 0, 1, 1], "pads")
    padded = g.node("Pad", [x, pads], (batch, channels, height + 1, width + 1), "pad")
    starts, ends = g.integers([1, 1], "starts"), g.integers([height + 1, width + 1], "ends")
    axes = g.integers([2, 3], "axes")
    return g.node("Slice", [padded, starts, ends, axes], x.shape, "crop")


def _adjust(g: GraphBuilder, previous: Value | None, x: Value, filters: int) -> Value:
    """`previous` brought to the extents of `x` and to `filters` channels (paper, appendix A.4).

    Halving takes every other pixel twice, the second time shifted by one, so that none is lost.
    Without a previous cell, `x` itself, whatever its channels.
    """
    if previous is None:
        return x
    with g.scope("adjust"):
        if previous.shape[2] != x.shape[2]:
            active = g.relu(previous)
            half = Convolution(filters // 2)
            left = g.average_pool(active, Pooling(1, stride=2), "avg_pool_1")
            left = g.conv(left, half, "conv_1")
            right = g.average_pool(_shifted(g, active), Pooling(1, stride=2), "avg_pool_2")
            right = g.conv(right, half, "conv_2")
            return _norm(g, g.concat([left, right]), "bn")
        if previous.channels != filters:
            projected = g.conv(g.relu(previous), Convolution(filters), "conv_projection")
            return _norm(g, projected, "bn")
    return previous


def _squeeze(g: GraphBuilder, x: Value, filters: int) -> Value:
    return _norm(g, g.conv(g.relu(x), Convolution(filters), "conv_1"), "bn_1")


def _normal_cell(g: GraphBuilder, x: Value, previous: Value, filters: int) -> Value:
    p = _adjust(g, previous, x, filters)
    h = _squeeze(g, x, filters)
    left = _separable(g, h, filters, 5, 1, "left1")
    one = g.add(left, _separable(g, p, filters, 3, 1, "right1"), "add_1")
    left = _separable(g, p, filters, 5, 1, "left2")
    two = g.add(left, _separable(g, p, filters, 3, 1, "right2"), "add_2")
    three = g.add(_average(g, h, 1, "left3"), p, "add_3")
    four = g.add(_average(g, p, 1, "left4"), _average(g, p, 1, "right4"), "add_4")
    five = g.add(_separable(g, h, filters, 3, 1, "left5"), h, "add_5")
    return g.concat([p, one, two, three, four, five])


def _reduction_cell(g: GraphBuilder, x: Value, previous: Value | None, filters: int) -> Value:
    p = _adjust(g, previous, x, filters)
    h = _squeeze(g, x, filters)
    left = _separable(g, h, filters, 5, 2, "left1")
    one = g.add(left, _separable(g, p, filters, 7, 2, "right1"), "add_1")
    two = g.add(_max(g, h, "left2"), _separable(g, p, filters, 7, 2, "right2"), "add_2")
    three = g.add(_average(g, h, 2, "left3"), _separable(g, p, filters, 5, 2, "right3"), "add_3")
    four = g.add(two, _average(g, one, 1, "left4"), "add_4")
    five = g.add(_separable(g, one, filters, 3, 1, "left5"), _max(g, h, "right5"), "add_5")
    return g.concat([two, three, four, five])


def nasnet_mobile(g: GraphBuilder) -> None:
    """NASNet-A (4 @ 1056) for 224x224 images.

    Follows Keras, which reports 5,326,716 parameters: 5,289,978 trainable ones, matched here, and
    36,738 running statistics. Padding is written as TensorFlow computes it, uneven at even
    extents; the two equal poolings that a normal cell adds up stay two nodes.
    """
    filters = 1056 // 24
    x = g.input("input", (3, 224, 224))
    x = _norm(g, g.conv(x, Convolution(32, 3, stride=2, gain=1.0), "stem.conv1"), "stem.bn1")
    with g.scope("reduction_stem_1"):
        x, previous = _reduction_cell(g, x, None, filters // 4), x
    with g.scope("reduction_stem_2"):
        x, previous = _reduction_cell(g, x, previous, filters // 2), x
    index = 0
    for scale in (1, 2, 4):
        if scale > 1:
            with g.scope(f"reduction_{index}"):
                x, previous = _reduction_cell(g, x, previous, filters * scale), x
            index += 1
        for _ in range(4):
            with g.scope(f"normal_{index}"):
                x, previous = _normal_cell(g, x, previous, filters * scale), x
            index += 1
    x = g.flatten(g.global_average_pool(g.relu(x)))
    g.output(g.gemm(x, 1000, "predictions"), "logits")


ENTRIES = (
    ZooEntry(
        name="nasnet_mobile",
        construct=nasnet_mobile,
        parameters=5_289_978,
        multiply_adds=564_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Zoph et al., Learning Transferable Architectures for Scalable Image Recognition, "
            "CVPR 2018; as in Keras"
        ),
    ),
)

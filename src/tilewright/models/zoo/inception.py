"""Inception v3: branches with factorized convolutions (1x7 and 7x1, 1x3 and 3x1)."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value
from tilewright.models.zoo._entry import ZooEntry

_EPSILON = 1e-3


def _conv(g: GraphBuilder, x: Value, spec: Convolution, name: str) -> Value:
    return g.conv_bn_relu(x, spec, name, _EPSILON)


def _row(channels: int) -> Convolution:
    return Convolution(channels, (1, 7), padding=(0, 3))


def _column(channels: int) -> Convolution:
    return Convolution(channels, (7, 1), padding=(3, 0))


def _pooled(g: GraphBuilder, x: Value, channels: int) -> Value:
    pooled = g.average_pool(x, Pooling(3, padding=1), "branch_pool_average")
    return _conv(g, pooled, Convolution(channels), "branch_pool")


def _block_a(g: GraphBuilder, x: Value, pool_channels: int) -> Value:
    one = _conv(g, x, Convolution(64), "branch1x1")
    five = _conv(g, x, Convolution(48), "branch5x5_1")
    five = _conv(g, five, Convolution(64, 5, padding=2), "branch5x5_2")
    three = _conv(g, x, Convolution(64), "branch3x3dbl_1")
    three = _conv(g, three, Convolution(96, 3, padding=1), "branch3x3dbl_2")
    three = _conv(g, three, Convolution(96, 3, padding=1), "branch3x3dbl_3")
    return g.concat([one, five, three, _pooled(g, x, pool_channels)])


def _block_b(g: GraphBuilder, x: Value) -> Value:
    three = _conv(g, x, Convolution(384, 3, stride=2), "branch3x3")
    double = _conv(g, x, Convolution(64), "branch3x3dbl_1")
    double = _conv(g, double, Convolution(96, 3, padding=1), "branch3x3dbl_2")
    double = _conv(g, double, Convolution(96, 3, stride=2), "branch3x3dbl_3")
    return g.concat([three, double, g.max_pool(x, Pooling(3, stride=2))])


def _block_c(g: GraphBuilder, x: Value, width: int) -> Value:
    one = _conv(g, x, Convolution(192), "branch1x1")
    seven = _conv(g, x, Convolution(width), "branch7x7_1")
    seven = _conv(g, seven, _row(width), "branch7x7_2")
    seven = _conv(g, seven, _column(192), "branch7x7_3")
    double = _conv(g, x, Convolution(width), "branch7x7dbl_1")
    double = _conv(g, double, _column(width), "branch7x7dbl_2")
    double = _conv(g, double, _row(width), "branch7x7dbl_3")
    double = _conv(g, double, _column(width), "branch7x7dbl_4")
    double = _conv(g, double, _row(192), "branch7x7dbl_5")
    return g.concat([one, seven, double, _pooled(g, x, 192)])


def _block_d(g: GraphBuilder, x: Value) -> Value:
    three = _conv(g, x, Convolution(192), "branch3x3_1")
    three = _conv(g, three, Convolution(320, 3, stride=2), "branch3x3_2")
    seven = _conv(g, x, Convolution(192), "branch7x7x3_1")
    seven = _conv(g, seven, _row(192), "branch7x7x3_2")
    seven = _conv(g, seven, _column(192), "branch7x7x3_3")
    seven = _conv(g, seven, Convolution(192, 3, stride=2), "branch7x7x3_4")
    return g.concat([three, seven, g.max_pool(x, Pooling(3, stride=2))])


def _fork(g: GraphBuilder, x: Value, prefix: str) -> Value:
    row = _conv(g, x, Convolution(384, (1, 3), padding=(0, 1)), f"{prefix}a")
    column = _conv(g, x, Convolution(384, (3, 1), padding=(1, 0)), f"{prefix}b")
    return g.concat([row, column])


def _block_e(g: GraphBuilder, x: Value) -> Value:
    one = _conv(g, x, Convolution(320), "branch1x1")
    three = _conv(g, x, Convolution(384), "branch3x3_1")
    three = _fork(g, three, "branch3x3_2")
    double = _conv(g, x, Convolution(448), "branch3x3dbl_1")
    double = _conv(g, double, Convolution(384, 3, padding=1), "branch3x3dbl_2")
    double = _fork(g, double, "branch3x3dbl_3")
    return g.concat([one, three, double, _pooled(g, x, 192)])


def _stem(g: GraphBuilder, x: Value) -> Value:
    x = _conv(g, x, Convolution(32, 3, stride=2), "Conv2d_1a_3x3")
    x = _conv(g, x, Convolution(32, 3), "Conv2d_2a_3x3")
    x = _conv(g, x, Convolution(64, 3, padding=1), "Conv2d_2b_3x3")
    x = g.max_pool(x, Pooling(3, stride=2), "maxpool1")
    x = _conv(g, x, Convolution(80), "Conv2d_3b_1x1")
    x = _conv(g, x, Convolution(192, 3), "Conv2d_4a_3x3")
    return g.max_pool(x, Pooling(3, stride=2), "maxpool2")


def inception_v3(g: GraphBuilder) -> None:
    """Inception v3 for 299x299 images, without the auxiliary classifier.

    Follows torchvision. Images enter normalized: its rescaling of the input is left out.
    """
    x = _stem(g, g.input("input", (3, 299, 299)))
    for name, pool_channels in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        with g.scope(name):
            x = _block_a(g, x, pool_channels)
    with g.scope("Mixed_6a"):
        x = _block_b(g, x)
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        with g.scope(name):
            x = _block_c(g, x, width)
    with g.scope("Mixed_7a"):
        x = _block_d(g, x)
    for name in ("Mixed_7b", "Mixed_7c"):
        with g.scope(name):
            x = _block_e(g, x)
    x = g.flatten(g.global_average_pool(x))
    g.output(g.gemm(x, 1000), "logits")


ENTRIES = (
    ZooEntry(
        name="inception_v3",
        construct=inception_v3,
        parameters=23_834_568,
        multiply_adds=5_713_000_000,
        input_shapes=((1, 3, 299, 299),),
        output_shapes=((1, 1000),),
        source=(
            "Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR "
            "2016; as in torchvision, without the auxiliary classifier"
        ),
    ),
)

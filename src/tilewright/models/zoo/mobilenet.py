"""MobileNetV2: inverted residuals with depthwise convolutions and linear bottlenecks."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Value
from tilewright.models.zoo._entry import ZooEntry

_STAGES = (  # expansion, output channels, blocks, stride of the first (Table 2 of the paper)
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _relu6(g: GraphBuilder, x: Value) -> Value:
    return g.node("Clip", [x, g.scalar(0.0, "min"), g.scalar(6.0, "max")], x.shape, "relu6")


def _conv_bn_relu6(g: GraphBuilder, x: Value, spec: Convolution, name: str) -> Value:
    with g.scope(name):
        return _relu6(g, g.batch_norm(g.conv(x, spec, "0"), "1"))


def _inverted_residual(
    g: GraphBuilder, x: Value, expansion: int, channels: int, stride: int
) -> Value:
    hidden = expansion * x.channels
    y, index = x, 0
    with g.scope("conv"):
        if expansion > 1:
            y = _conv_bn_relu6(g, y, Convolution(hidden), "0")
            index = 1
        depthwise = Convolution(hidden, 3, stride, padding=1, groups=hidden)
        y = _conv_bn_relu6(g, y, depthwise, str(index))
        y = g.conv(y, Convolution(channels, gain=1.0), str(index + 1))
        y = g.batch_norm(y, str(index + 2))
    if stride == 1 and x.channels == channels:
        return g.add(x, y)
    return y


def mobilenet_v2(g: GraphBuilder) -> None:
    """MobileNetV2 of width 1.0 for 224x224 images; ReLU6 is a Clip between 0 and 6."""
    x = g.input("input", (3, 224, 224))
    x = _conv_bn_relu6(g, x, Convolution(32, 3, stride=2, padding=1), "features.0")
    index = 1
    for expansion, channels, depth, first_stride in _STAGES:
        for block in range(depth):
            stride = 1 if block else first_stride
            with g.scope(f"features.{index}"):
                x = _inverted_residual(g, x, expansion, channels, stride)
            index += 1
    x = _conv_bn_relu6(g, x, Convolution(1280), f"features.{index}")
    x = g.flatten(g.global_average_pool(x))
    g.output(g.gemm(x, 1000, "classifier.1"), "logits")


ENTRIES = (
    ZooEntry(
        name="mobilenet_v2",
        construct=mobilenet_v2,
        parameters=3_504_872,
        multiply_adds=301_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, CVPR 2018; "
            "as in torchvision"
        ),
    ),
)

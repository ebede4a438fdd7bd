"""GoogLeNet: Inception blocks of four parallel branches."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value
from tilewright.models.zoo._entry import ZooEntry

_EPSILON = 1e-3


@dataclass(frozen=True, slots=True)
class _Widths:
    """Output channels of the convolutions in an Inception block (Table 1 of the paper)."""

    branch1: int
    branch2_reduce: int
    branch2: int
    branch3_reduce: int
    branch3: int
    branch4: int


_STAGE3 = (("3a", _Widths(64, 96, 128, 16, 32, 32)), ("3b", _Widths(128, 128, 192, 32, 96, 64)))
_STAGE4 = (
    ("4a", _Widths(192, 96, 208, 16, 48, 64)),
    ("4b", _Widths(160, 112, 224, 24, 64, 64)),
    ("4c", _Widths(128, 128, 256, 24, 64, 64)),
    ("4d", _Widths(112, 144, 288, 32, 64, 64)),
    ("4e", _Widths(256, 160, 320, 32, 128, 128)),
)
_STAGE5 = (
    ("5a", _Widths(256, 160, 320, 32, 128, 128)),
    ("5b", _Widths(384, 192, 384, 48, 128, 128)),
)


def _inception(g: GraphBuilder, x: Value, widths: _Widths) -> Value:
    one = g.conv_bn_relu(x, Convolution(widths.branch1), "branch1", _EPSILON)
    two = g.conv_bn_relu(x, Convolution(widths.branch2_reduce), "branch2.0", _EPSILON)
    two = g.conv_bn_relu(two, Convolution(widths.branch2, 3, padding=1), "branch2.1", _EPSILON)
    three = g.conv_bn_relu(x, Convolution(widths.branch3_reduce), "branch3.0", _EPSILON)
    three = g.conv_bn_relu(three, Convolution(widths.branch3, 3, padding=1), "branch3.1", _EPSILON)
    four = g.max_pool(x, Pooling(3, padding=1, ceil=True), "branch4.0")
    four = g.conv_bn_relu(four, Convolution(widths.branch4), "branch4.1", _EPSILON)
    return g.concat([one, two, three, four])


def _stage(g: GraphBuilder, x: Value, blocks: tuple[tuple[str, _Widths], ...]) -> Value:
    for name, widths in blocks:
        with g.scope(f"inception{name}"):
            x = _inception(g, x, widths)
    return x


def googlenet(g: GraphBuilder) -> None:
    """GoogLeNet for 224x224 images, without the auxiliary classifiers.

    Follows torchvision, which has batch normalization and a 3x3 convolution where the paper has
    a 5x5 one. Images enter normalized: torchvision's rescaling of the input is left out.
    """
    x = g.input("input", (3, 224, 224))
    x = g.conv_bn_relu(x, Convolution(64, 7, stride=2, padding=3), "conv1", _EPSILON)
    x = g.max_pool(x, Pooling(3, stride=2, ceil=True), "maxpool1")
    x = g.conv_bn_relu(x, Convolution(64), "conv2", _EPSILON)
    x = g.conv_bn_relu(x, Convolution(192, 3, padding=1), "conv3", _EPSILON)
    x = g.max_pool(x, Pooling(3, stride=2, ceil=True), "maxpool2")
    x = _stage(g, x, _STAGE3)
    x = g.max_pool(x, Pooling(3, stride=2, ceil=True), "maxpool3")
    x = _stage(g, x, _STAGE4)
    x = g.max_pool(x, Pooling(2, stride=2, ceil=True), "maxpool4")
    x = _stage(g, x, _STAGE5)
    x = g.flatten(g.global_average_pool(x))
    g.output(g.gemm(x, 1000), "logits")


ENTRIES = (
    ZooEntry(
        name="googlenet",
        construct=googlenet,
        parameters=6_624_904,
        multiply_adds=1_498_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Szegedy et al., Going Deeper with Convolutions, CVPR 2015; as in torchvision, "
            "without auxiliary classifiers"
        ),
    ),
)

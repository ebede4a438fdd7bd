"""ResNet: residual blocks of two 3x3 convolutions, or of a 1x1, a 3x3 and a 1x1."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value
from tilewright.models.zoo._entry import ZooEntry

_RESIDUAL_GAIN = 0.25  # keeps the sum of many residual branches of order 1


def stem(g: GraphBuilder, x: Value) -> Value:
    """The 7x7 convolution and the pooling that every ResNet starts with."""
    x = g.conv(x, Convolution(64, 7, stride=2, padding=3), "conv1")
    x = g.relu(g.batch_norm(x, "bn1"))
    return g.max_pool(x, Pooling(3, stride=2, padding=1))


def shortcut(g: GraphBuilder, x: Value, channels: int, stride: int) -> Value:
    """The path around a block: the identity where shapes agree, else a 1x1 projection."""
    if stride == 1 and x.channels == channels:
        return x
    with g.scope("downsample"):
        return g.batch_norm(g.conv(x, Convolution(channels, stride=stride, gain=1.0), "0"), "1")


def _basic_block(g: GraphBuilder, x: Value, width: int, stride: int) -> Value:
    y = g.conv(x, Convolution(width, 3, stride, padding=1), "conv1")
    y = g.relu(g.batch_norm(y, "bn1"))
    y = g.conv(y, Convolution(width, 3, padding=1, gain=_RESIDUAL_GAIN), "conv2")
    y = g.batch_norm(y, "bn2")
    return g.relu(g.add(y, shortcut(g, x, width, stride)))


def _bottleneck(g: GraphBuilder, x: Value, width: int, stride: int) -> Value:
    y = g.relu(g.batch_norm(g.conv(x, Convolution(width), "conv1"), "bn1"))
    y = g.conv(y, Convolution(width, 3, stride, padding=1), "conv2")
    y = g.relu(g.batch_norm(y, "bn2"))
    y = g.conv(y, Convolution(4 * width, gain=_RESIDUAL_GAIN), "conv3")
    y = g.batch_norm(y, "bn3")
    return g.relu(g.add(y, shortcut(g, x, 4 * width, stride)))


def _resnet(g: GraphBuilder, depths: tuple[int, ...], *, bottleneck: bool) -> None:
    block = _bottleneck if bottleneck else _basic_block
    x = stem(g, g.input("input", (3, 224, 224)))
    for stage, depth in enumerate(depths):
        for index in range(depth):
            with g.scope(f"layer{stage + 1}.{index}"):
                x = block(g, x, 64 << stage, 2 if stage and not index else 1)
    x = g.flatten(g.global_average_pool(x))
    g.output(g.gemm(x, 1000), "logits")


def resnet18(g: GraphBuilder) -> None:
    """ResNet-18 for 224x224 images and 1000 classes."""
    _resnet(g, (2, 2, 2, 2), bottleneck=False)


def resnet50(g: GraphBuilder) -> None:
    """ResNet-50 v1.5: the stride sits in the 3x3 convolution of a block, not in the first 1x1."""
    _resnet(g, (3, 4, 6, 3), bottleneck=True)


_PAPER = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016; as in torchvision"

ENTRIES = (
    ZooEntry(
        name="resnet18",
        construct=resnet18,
        parameters=11_689_512,
        multiply_adds=1_814_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=_PAPER,
    ),
    ZooEntry(
        name="resnet50",
        construct=resnet50,
        parameters=25_557_032,
        multiply_adds=4_089_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=f"{_PAPER} (v1.5)",
    ),
)

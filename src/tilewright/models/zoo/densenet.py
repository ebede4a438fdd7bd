"""DenseNet: every layer reads the features of all layers before it in its block."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value
from tilewright.models.zoo._entry import ZooEntry

_GROWTH = 32
_BOTTLENECK = 4 * _GROWTH


def _dense_layer(g: GraphBuilder, features: list[Value]) -> Value:
    x = g.concat(features)
    x = g.relu(g.batch_norm(x, "norm1"), "relu1")
    x = g.conv(x, Convolution(_BOTTLENECK), "conv1")
    x = g.relu(g.batch_norm(x, "norm2"), "relu2")
    return g.conv(x, Convolution(_GROWTH, 3, padding=1), "conv2")


def _dense_block(g: GraphBuilder, x: Value, depth: int) -> Value:
    features = [x]
    for index in range(1, depth + 1):
        with g.scope(f"denselayer{index}"):
            features.append(_dense_layer(g, features))
    return g.concat(features)


def _transition(g: GraphBuilder, x: Value) -> Value:
    x = g.relu(g.batch_norm(x, "norm"))
    x = g.conv(x, Convolution(x.channels // 2))
    return g.average_pool(x, Pooling(2, stride=2), "pool")


def densenet201(g: GraphBuilder) -> None:
    """DenseNet-201, growth 32, for 224x224 images.

    Batch normalization and ReLU come before the convolutions. The first layer of a block
    concatenates one tensor, as torchvision's does when exported.
    """
    depths = (6, 12, 48, 32)
    x = g.input("input", (3, 224, 224))
    with g.scope("features"):
        x = g.conv(x, Convolution(64, 7, stride=2, padding=3), "conv0")
        x = g.relu(g.batch_norm(x, "norm0"), "relu0")
        x = g.max_pool(x, Pooling(3, stride=2, padding=1), "pool0")
        for block, depth in enumerate(depths, start=1):
            with g.scope(f"denseblock{block}"):
                x = _dense_block(g, x, depth)
            if block < len(depths):
                with g.scope(f"transition{block}"):
                    x = _transition(g, x)
        x = g.batch_norm(x, "norm5")
    x = g.flatten(g.global_average_pool(g.relu(x)))
    g.output(g.gemm(x, 1000, "classifier"), "logits")


ENTRIES = (
    ZooEntry(
        name="densenet201",
        construct=densenet201,
        parameters=20_013_928,
        multiply_adds=4_291_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Huang et al., Densely Connected Convolutional Networks, CVPR 2017; as in torchvision"
        ),
    ),
)

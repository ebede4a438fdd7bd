"""SqueezeNet: fire modules, a 1x1 squeeze before parallel 1x1 and 3x3 expansions."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling, Value
from tilewright.models.zoo._entry import ZooEntry

_LAYERS = (  # torchvision's index -> (squeeze, expansion of each branch); None is a pooling
    (2, None),
    (3, (16, 64)),
    (4, (16, 64)),
    (5, None),
    (6, (32, 128)),
    (7, (32, 128)),
    (8, None),
    (9, (48, 192)),
    (10, (48, 192)),
    (11, (64, 256)),
    (12, (64, 256)),
)


def _fire(g: GraphBuilder, x: Value, squeeze: int, expand: int) -> Value:
    x = g.relu(g.conv(x, Convolution(squeeze, bias=True), "squeeze"), "squeeze_activation")
    one = g.conv(x, Convolution(expand, bias=True), "expand1x1")
    three = g.conv(x, Convolution(expand, 3, padding=1, bias=True), "expand3x3")
    branches = [g.relu(one, "expand1x1_activation"), g.relu(three, "expand3x3_activation")]
    return g.concat(branches)


def squeezenet1_1(g: GraphBuilder) -> None:
    """SqueezeNet 1.1 for 224x224 images. A ReLU comes after the class scores, so many are 0."""
    x = g.input("input", (3, 224, 224))
    x = g.conv(x, Convolution(64, 3, stride=2, bias=True), "features.0")
    x = g.relu(x, "features.1")
    for index, widths in _LAYERS:
        if widths is None:
            x = g.max_pool(x, Pooling(3, stride=2, ceil=True), f"features.{index}")
            continue
        with g.scope(f"features.{index}"):
            x = _fire(g, x, *widths)
    x = g.relu(g.conv(x, Convolution(1000, bias=True), "classifier.1"), "classifier.2")
    x = g.global_average_pool(x, "classifier.3")
    g.output(g.flatten(x), "logits")


ENTRIES = (
    ZooEntry(
        name="squeezenet1_1",
        construct=squeezenet1_1,
        parameters=1_235_496,
        multiply_adds=349_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Iandola et al., SqueezeNet: AlexNet-Level Accuracy with 50x Fewer Parameters, 2016; "
            "version 1.1 as in torchvision"
        ),
    ),
)

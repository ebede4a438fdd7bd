"""VGG: a plain stack of 3x3 convolutions."""

from __future__ import annotations

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling
from tilewright.models.zoo._entry import ZooEntry

_VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19_bn(g: GraphBuilder) -> None:
    """VGG-19 (configuration E) with batch normalization, for 224x224 images.

    Convolutions keep their bias although a batch normalization follows, as in torchvision. The
    1x1 AveragePool before the classifier is what exporters make of the adaptive pooling there.
    """
    x = g.input("input", (3, 224, 224))
    with g.scope("features"):
        index = 0
        for channels, depth in _VGG19:
            for _ in range(depth):
                x = g.conv(x, Convolution(channels, 3, padding=1, bias=True), str(index))
                x = g.relu(g.batch_norm(x, str(index + 1)), str(index + 2))
                index += 3
            x = g.max_pool(x, Pooling(2, stride=2), str(index))
            index += 1
    x = g.flatten(g.average_pool(x, Pooling(1)))
    with g.scope("classifier"):
        x = g.relu(g.gemm(x, 4096, "0", gain=2.0), "1")
        x = g.relu(g.gemm(x, 4096, "3", gain=2.0), "4")
        x = g.gemm(x, 1000, "6")
    g.output(x, "logits")


ENTRIES = (
    ZooEntry(
        name="vgg19_bn",
        construct=vgg19_bn,
        parameters=143_678_248,
        multiply_adds=19_632_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image "
            "Recognition, ICLR 2015; as in torchvision"
        ),
    ),
)

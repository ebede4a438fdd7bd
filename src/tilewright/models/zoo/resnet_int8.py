"""ResNet quantized to 8 bits after training: the networks of `resnet` on codes."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Pooling
from tilewright.models.zoo._entry import ZooEntry
from tilewright.models.zoo._quantized import Codes, QuantizedBuilder

_RESIDUAL_GAIN = 0.25  # as in `resnet`


def _shortcut(q: QuantizedBuilder, x: Codes, channels: int, stride: int) -> Codes:
    if stride == 1 and x.channels == channels:
        return x
    with q.graph.scope("downsample"):
        spec = Convolution(channels, stride=stride, gain=1.0)
        return q.conv_norm(x, spec, "0", "1", relu=False)


def _basic_block(q: QuantizedBuilder, x: Codes, width: int, stride: int) -> Codes:
    y = q.conv_norm(x, Convolution(width, 3, stride, padding=1), "conv1", "bn1")
    last = Convolution(width, 3, padding=1, gain=_RESIDUAL_GAIN)
    y = q.conv_norm(y, last, "conv2", "bn2", relu=False)
    return q.add_relu(y, _shortcut(q, x, width, stride))


def _bottleneck(q: QuantizedBuilder, x: Codes, width: int, stride: int) -> Codes:
    y = q.conv_norm(x, Convolution(width), "conv1", "bn1")
    y = q.conv_norm(y, Convolution(width, 3, stride, padding=1), "conv2", "bn2")
    last = Convolution(4 * width, gain=_RESIDUAL_GAIN)
    y = q.conv_norm(y, last, "conv3", "bn3", relu=False)
    return q.add_relu(y, _shortcut(q, x, 4 * width, stride))


def quantized_resnet(
    g: GraphBuilder,
    depths: Sequence[int],
    *,
    bottleneck: bool,
    width: int = 64,
    extent: int = 224,
    classes: int = 1000,
) -> None:
    """A quantized ResNet for square images of `extent`; `width` channels behind its stem."""
    q, block = QuantizedBuilder(g), _bottleneck if bottleneck else _basic_block
    image = g.input("input", (3, extent, extent))
    x = q.quantize(image, 1.0, signed=True)
    x = q.conv_norm(x, Convolution(width, 7, stride=2, padding=3), "conv1", "bn1")
    x = q.max_pool(x, Pooling(3, stride=2, padding=1))
    for stage, depth in enumerate(depths):
        for index in range(depth):
            with g.scope(f"layer{stage + 1}.{index}"):
                x = block(q, x, width << stage, 2 if stage and not index else 1)
    q.output(q.gemm(q.global_average_pool(x), classes), "logits")


def resnet18_int8(g: GraphBuilder) -> None:
    """ResNet-18 on codes of 8 bits; input and logits are float32."""
    quantized_resnet(g, (2, 2, 2, 2), bottleneck=False)


def resnet50_int8(g: GraphBuilder) -> None:
    """ResNet-50 v1.5 on codes of 8 bits; input and logits are float32."""
    quantized_resnet(g, (3, 4, 6, 3), bottleneck=True)


_SOURCE = (
    "He et al., Deep Residual Learning for Image Recognition, CVPR 2016; as in torchvision, "
    "quantized as by ONNX Runtime's quantize_static (QDQ, uint8 activations, int8 weights per "
    "channel)"
)

ENTRIES = (
    ZooEntry(
        name="resnet18_int8",
        construct=resnet18_int8,
        parameters=11_689_512 - 4_800,  # a folded batch norm is one bias
        multiply_adds=1_814_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=_SOURCE,
    ),
    ZooEntry(
        name="resnet50_int8",
        construct=resnet50_int8,
        parameters=25_557_032 - 26_560,
        multiply_adds=4_089_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=_SOURCE,
    ),
)

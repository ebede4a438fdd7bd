"""SSD: boxes and classes predicted at several scales on top of a ResNet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Value
from tilewright.models.zoo._entry import ZooEntry
from tilewright.models.zoo.resnet import shortcut, stem

_CLASSES = 20 + 1  # PASCAL VOC and the background, which is class 0
_STEPS = (16, 32, 64, 128, 256, 512)
_SIZES = (51.2, 102.4, 189.4, 276.4, 363.52, 450.6, 492.0)
_FEW = (1.0, 2.0, 0.5)
_MANY = (*_FEW, 3.0, 1.0 / 3.0)
_RATIOS = (_FEW, _MANY, _MANY, _MANY, _FEW, _FEW)
_EXPANSION = (512, 512, 256, 256)
_DEVIATIONS = (0.1, 0.1, 0.2, 0.2)


def _bottleneck(g: GraphBuilder, x: Value, width: int, stride: int) -> Value:
    """MXNet's v1 block: the stride is in the first 1x1, and both 1x1 convolutions have a bias."""
    y = g.conv(x, Convolution(width, stride=stride, bias=True), "conv1")
    y = g.relu(g.batch_norm(y, "bn1"))
    y = g.conv(y, Convolution(width, 3, padding=1), "conv2")
    y = g.relu(g.batch_norm(y, "bn2"))
    y = g.conv(y, Convolution(4 * width, bias=True, gain=0.25), "conv3")
    y = g.batch_norm(y, "bn3")
    return g.relu(g.add(y, shortcut(g, x, 4 * width, stride)))


def _features(g: GraphBuilder, x: Value) -> list[Value]:
    """Feature maps at strides 16 to 512: the last two ResNet stages and four more steps."""
    x = stem(g, x)
    features: list[Value] = []
    for stage, depth in enumerate((3, 4, 6, 3)):
        for index in range(depth):
            with g.scope(f"layer{stage + 1}.{index}"):
                x = _bottleneck(g, x, 64 << stage, 2 if stage and not index else 1)
        features.append(x)
    features = features[2:]
    for index, channels in enumerate(_EXPANSION):
        x = g.conv_bn_relu(x, Convolution(channels), f"expand{index}.transition", 1e-3)
        half = Convolution(channels, 3, stride=2, padding=1)
        x = g.conv_bn_relu(x, half, f"expand{index}.downsample", 1e-3)
        features.append(x)
    return features


def _head(g: GraphBuilder, features: list[Value], width: int, name: str) -> Value:
    """One 3x3 convolution per scale, flattened over places and anchors and joined."""
    parts: list[Value] = []
    for index, (feature, ratios) in enumerate(zip(features, _RATIOS, strict=True)):
        channels = (len(ratios) + 1) * width
        with g.scope(f"{name}.{index}"):
            spec = Convolution(channels, 3, padding=1, bias=True, gain=0.1)
            x = g.transpose(g.conv(feature, spec), (0, 2, 3, 1))
            parts.append(g.flatten(x))
    joined = g.concat(parts, name=f"{name}.concat")
    return g.reshape(joined, (g.batch, joined.shape[1] // width, width), f"{name}.reshape")


def anchors() -> NDArray[np.float32]:
    """The anchor boxes as (center x, center y, width, height) in pixels: [6132, 4].

    Per place first the scale's own size, then the geometric mean with the next scale's size,
    both square, then the own size at the other aspect ratios (paper, section 2.2).
    """
    parts: list[NDArray[np.floating]] = []
    for step, ratios, size, larger in zip(_STEPS, _RATIOS, _SIZES[:-1], _SIZES[1:], strict=True):
        roots = np.sqrt(np.array(ratios[1:]))
        mean = np.sqrt(size * larger)
        widths = np.concatenate([[size, mean], size * roots])
        heights = np.concatenate([[size, mean], size / roots])
        centers = (np.arange(512 // step) + 0.5) * step
        grid_y, grid_x, index = np.meshgrid(centers, centers, np.arange(len(widths)), indexing="ij")
        boxes = np.stack([grid_x, grid_y, widths[index], heights[index]], axis=-1)
        parts.append(boxes.reshape(-1, 4))
    return np.concatenate(parts).astype(np.float32)


def _decode(g: GraphBuilder, offsets: Value) -> Value:
    """Offsets to corners (left, top, right, bottom) in pixels."""
    columns = [anchors()[None, :, axis : axis + 1] for axis in range(4)]
    names = ("anchor_x", "anchor_y", "anchor_width", "anchor_height")
    x, y, width, height = (
        g.constant(column, name) for column, name in zip(columns, names, strict=True)
    )
    dx, dy, dw, dh = g.split(offsets, 4, axis=2)
    center_x = g.add(g.multiply(g.multiply(dx, _DEVIATIONS[0]), width), x)
    center_y = g.add(g.multiply(g.multiply(dy, _DEVIATIONS[1]), height), y)
    growth_x = g.unary("Exp", g.multiply(dw, _DEVIATIONS[2]))
    growth_y = g.unary("Exp", g.multiply(dh, _DEVIATIONS[3]))
    half_width = g.binary("Div", g.multiply(growth_x, width), 2.0)
    half_height = g.binary("Div", g.multiply(growth_y, height), 2.0)
    corners = [
        g.binary("Sub", center_x, half_width),
        g.binary("Sub", center_y, half_height),
        g.add(center_x, half_width),
        g.add(center_y, half_height),
    ]
    return g.concat(corners, axis=2)


def ssd_resnet50_512(g: GraphBuilder) -> None:
    """SSD for 512x512 images on ResNet-50 v1, 20 classes of PASCAL VOC.

    Follows GluonCV's ssd_512_resnet50_v1_voc. Outputs, over 6132 anchors: raw class scores (class
    0 is the background), their softmax, raw box offsets, and boxes as (left, top, right, bottom)
    in pixels. Non-maximum suppression is left out: its output has no fixed shape and it is no
    work for a tensor compiler. Every batch normalization has its own scale, also in the added
    layers, where GluonCV fixes it to 1.
    """
    features = _features(g, g.input("input", (3, 512, 512)))
    scores = g.output(_head(g, features, _CLASSES, "class_predictors"), "class_scores")
    offsets = g.output(_head(g, features, 4, "box_predictors"), "box_offsets")
    g.output(g.softmax(scores), "class_probabilities")
    with g.scope("decode"):
        boxes = _decode(g, offsets)
    g.output(boxes, "boxes")


ENTRIES = (
    ZooEntry(
        name="ssd_resnet50_512",
        construct=ssd_resnet50_512,
        parameters=36_468_974,
        multiply_adds=None,
        input_shapes=((1, 3, 512, 512),),
        output_shapes=((1, 6132, 21), (1, 6132, 4), (1, 6132, 21), (1, 6132, 4)),
        source=(
            "Liu et al., SSD: Single Shot MultiBox Detector, ECCV 2016; as in GluonCV "
            "(ssd_512_resnet50_v1_voc), without non-maximum suppression; parameters counted by "
            "hand from that source"
        ),
    ),
)

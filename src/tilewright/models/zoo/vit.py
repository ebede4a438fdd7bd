"""Vision transformer: an encoder over image patches."""

from __future__ import annotations

import numpy as np

from tilewright.models.zoo._builder import Convolution, GraphBuilder, Value
from tilewright.models.zoo._entry import ZooEntry
from tilewright.models.zoo._transformer import attend, gelu_erf, layer_norm, linear

_PATCH = 16
_PATCHES = (224 // _PATCH) ** 2
_WIDTH = 768
_HEADS = 12
_LAYERS = 12
_EPSILON = 1e-6
_RESIDUAL_GAIN = 0.5  # keeps the sum of the residual branches of order 1


def _embed(g: GraphBuilder, image: Value) -> Value:
    """Patches as tokens after the class token, plus their places: [batch, 197, 768]."""
    patch = Convolution(_WIDTH, _PATCH, stride=_PATCH, bias=True, gain=1.0)
    x = g.reshape(g.conv(image, patch, "conv_proj"), (g.batch, _WIDTH, _PATCHES), "patches")
    x = g.transpose(x, (0, 2, 1), "tokens")
    token = g.normal("class_token", (1, 1, _WIDTH), 1.0)
    shape = (g.batch, 1, _WIDTH)
    token = g.node("Expand", [token, g.integers(shape, "class_shape")], shape, "class")
    x = g.concat([token, x], name="sequence")
    place = g.normal("encoder.pos_embedding", (1, _PATCHES + 1, _WIDTH), 0.5)
    return g.add(x, place, "encoder.position")


def _layer(g: GraphBuilder, x: Value, name: str) -> Value:
    y = layer_norm(g, x, f"{name}.ln_1", _EPSILON)
    y = linear(g, y, 3 * _WIDTH, f"{name}.self_attention.in_proj")
    with g.scope(f"{name}.self_attention"):
        y = attend(g, g.split(y, 3, axis=2), _HEADS)
    y = linear(g, y, _WIDTH, f"{name}.self_attention.out_proj", _RESIDUAL_GAIN)
    x = g.add(y, x, f"{name}.self_attention.residual")
    y = layer_norm(g, x, f"{name}.ln_2", _EPSILON)
    y = gelu_erf(g, linear(g, y, 4 * _WIDTH, f"{name}.mlp.0"), f"{name}.mlp.1")
    y = linear(g, y, _WIDTH, f"{name}.mlp.3", _RESIDUAL_GAIN)
    return g.add(x, y, f"{name}.mlp.residual")


def vit_b16(g: GraphBuilder) -> None:
    """ViT-B/16 for 224x224 images: 197 tokens of width 768.

    Query, key and value come from one product that is then split, as in torchvision.
    """
    x = _embed(g, g.input("input", (3, 224, 224)))
    for layer in range(_LAYERS):
        x = _layer(g, x, f"encoder.layers.{layer}")
    x = layer_norm(g, x, "encoder.ln", _EPSILON)
    x = g.gather(x, g.constant(np.array(0, dtype=np.int64), "class_index"), 1, "class_output")
    g.output(g.gemm(x, 1000, "heads.head"), "logits")


ENTRIES = (
    ZooEntry(
        name="vit_b16",
        construct=vit_b16,
        parameters=86_567_656,
        multiply_adds=17_560_000_000,
        input_shapes=((1, 3, 224, 224),),
        output_shapes=((1, 1000),),
        source=(
            "Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image "
            "Recognition at Scale, ICLR 2021; as in torchvision"
        ),
    ),
)

"""GPT-2: a causal transformer decoder."""

from __future__ import annotations

import math

import numpy as np

from tilewright.models.zoo._builder import GraphBuilder, Value
from tilewright.models.zoo._entry import ZooEntry
from tilewright.models.zoo._transformer import attend, gelu_tanh, layer_norm

_VOCABULARY = 50_257
_SEQUENCE = 64
_POSITIONS = 1024
_WIDTH = 768
_HEADS = 12
_LAYERS = 12
_EPSILON = 1e-5
_RESIDUAL_GAIN = 1 / (2 * _LAYERS)  # the paper scales residual layers by 1 / sqrt of their number


def _dense(g: GraphBuilder, x: Value, features: int, name: str, gain: float = 1.0) -> Value:
    """GPT-2's linear layer: Gemm on flattened rows, with weights [in, out]."""
    batch, length, width = x.shape
    with g.scope(name):
        rows = g.reshape(x, (batch * length, width), "flatten")
        weight = g.normal(f"{name}.weight", (width, features), math.sqrt(gain / width))
        bias = g.normal(f"{name}.bias", (features,), 0.02)
        y = g.node("Gemm", [rows, weight, bias], (batch * length, features), "gemm")
        return g.reshape(y, (batch, length, features), "unflatten")


def _block(g: GraphBuilder, x: Value, mask: Value, name: str) -> Value:
    y = layer_norm(g, x, f"{name}.ln_1", _EPSILON)
    y = _dense(g, y, 3 * _WIDTH, f"{name}.attn.c_attn")
    with g.scope(f"{name}.attn"):
        y = attend(g, g.split(y, 3, axis=2), _HEADS, mask)
    y = _dense(g, y, _WIDTH, f"{name}.attn.c_proj", _RESIDUAL_GAIN)
    x = g.add(x, y, f"{name}.attn.residual")
    y = layer_norm(g, x, f"{name}.ln_2", _EPSILON)
    y = gelu_tanh(g, _dense(g, y, 4 * _WIDTH, f"{name}.mlp.c_fc"), f"{name}.mlp.gelu")
    y = _dense(g, y, _WIDTH, f"{name}.mlp.c_proj", _RESIDUAL_GAIN)
    return g.add(x, y, f"{name}.mlp.residual")


def gpt2_small(g: GraphBuilder) -> None:
    """GPT-2 small on 64 tokens, without a cache: logits for every position.

    The causal mask is a constant. The head is tied: one Gemm on the transposed embedding table,
    which is stored once.
    """
    tokens = g.input("input_ids", (_SEQUENCE,), integer=True)
    table = g.normal("wte.weight", (_VOCABULARY, _WIDTH), 0.02)
    places = g.normal("wpe.weight", (_POSITIONS, _WIDTH), 0.01)
    place = g.constant(np.arange(_SEQUENCE, dtype=np.int64)[None], "position_ids")
    x = g.add(g.gather(table, tokens, name="wte"), g.gather(places, place, name="wpe"), "embed")
    triangle = np.tril(np.ones((1, 1, _SEQUENCE, _SEQUENCE), dtype=np.bool_))
    mask = g.constant(triangle, "causal_mask")
    for layer in range(_LAYERS):
        x = _block(g, x, mask, f"h.{layer}")
    x = layer_norm(g, x, "ln_f", _EPSILON)
    rows = g.batch * _SEQUENCE
    x = g.reshape(x, (rows, _WIDTH), "lm_head.flatten")
    x = g.node("Gemm", [x, table], (rows, _VOCABULARY), "lm_head", transB=1)
    g.output(g.reshape(x, (g.batch, _SEQUENCE, _VOCABULARY), "lm_head.unflatten"), "logits")


ENTRIES = (
    ZooEntry(
        name="gpt2_small",
        construct=gpt2_small,
        parameters=124_439_808,
        multiply_adds=None,
        input_shapes=((1, _SEQUENCE),),
        output_shapes=((1, _SEQUENCE, _VOCABULARY),),
        source=(
            "Radford et al., Language Models are Unsupervised Multitask Learners, 2019; as in "
            "transformers (GPT2LMHeadModel)"
        ),
        integer_limit=_VOCABULARY,
    ),
)

"""BERT: a bidirectional transformer encoder."""

from __future__ import annotations

import numpy as np

from tilewright.models.zoo._builder import GraphBuilder, Value
from tilewright.models.zoo._entry import ZooEntry
from tilewright.models.zoo._transformer import attend, gelu_erf, layer_norm, linear

_VOCABULARY = 30_522
_SEQUENCE = 128
_POSITIONS = 512
_WIDTH = 768
_HEADS = 12
_LAYERS = 12
_EPSILON = 1e-12


def _embed(g: GraphBuilder, tokens: Value) -> Value:
    words = g.normal("embeddings.word_embeddings.weight", (_VOCABULARY, _WIDTH), 0.02)
    kinds = g.normal("embeddings.token_type_embeddings.weight", (2, _WIDTH), 0.02)
    places = g.normal("embeddings.position_embeddings.weight", (_POSITIONS, _WIDTH), 0.02)
    kind = g.constant(np.zeros((1, _SEQUENCE), dtype=np.int64), "embeddings.token_type_ids")
    place = g.constant(np.arange(_SEQUENCE, dtype=np.int64)[None], "embeddings.position_ids")
    x = g.gather(words, tokens, name="embeddings.word_embeddings")
    x = g.add(x, g.gather(kinds, kind, name="embeddings.token_type_embeddings"))
    x = g.add(x, g.gather(places, place, name="embeddings.position_embeddings"))
    return layer_norm(g, x, "embeddings.LayerNorm", _EPSILON)


def _layer(g: GraphBuilder, x: Value, name: str) -> Value:
    parts = [linear(g, x, _WIDTH, f"{name}.attention.self.{p}") for p in ("query", "key", "value")]
    with g.scope(f"{name}.attention.self"):
        context = attend(g, parts, _HEADS)
    y = linear(g, context, _WIDTH, f"{name}.attention.output.dense")
    y = g.add(y, x, f"{name}.attention.output.residual")
    x = layer_norm(g, y, f"{name}.attention.output.LayerNorm", _EPSILON)
    y = linear(g, x, 4 * _WIDTH, f"{name}.intermediate.dense")
    y = gelu_erf(g, y, f"{name}.intermediate.gelu")
    y = linear(g, y, _WIDTH, f"{name}.output.dense", gain=2.0)
    y = g.add(y, x, f"{name}.output.residual")
    return layer_norm(g, y, f"{name}.output.LayerNorm", _EPSILON)


def bert_base(g: GraphBuilder) -> None:
    """BERT base, uncased vocabulary, on sequences of 128 tokens, with the pooler.

    Reads token ids alone: every token is of type 0 and none is padding, so there is no attention
    mask. Outputs the last hidden states and the pooled first token.
    """
    x = _embed(g, g.input("input_ids", (_SEQUENCE,), integer=True))
    for layer in range(_LAYERS):
        x = _layer(g, x, f"encoder.layer.{layer}")
    x = g.output(x, "last_hidden_state")
    first = g.gather(x, g.constant(np.array(0, dtype=np.int64), "pooler.index"), 1, "pooler.first")
    pooled = g.unary("Tanh", g.gemm(first, _WIDTH, "pooler.dense"), "pooler.activation")
    g.output(pooled, "pooler_output")


ENTRIES = (
    ZooEntry(
        name="bert_base",
        construct=bert_base,
        parameters=109_482_240,
        multiply_adds=11_250_000_000,
        input_shapes=((1, _SEQUENCE),),
        output_shapes=((1, _SEQUENCE, _WIDTH), (1, _WIDTH)),
        source=(
            "Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers for Language "
            "Understanding, NAACL 2019; as in transformers (BertModel). Multiply-adds: half of "
            "the 22.5 billion operations in Jiao et al., TinyBERT, 2020, Table 1"
        ),
        integer_limit=_VOCABULARY,
    ),
)

"""Small decoders with their cache, as exporters write them, and ONNX Runtime's own loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY = 500
WIDTH, DEPTH = 32, 8


class _Model:
    """Nodes of a model, added one by one; results are named after their number."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, to: str = "", **named: Any) -> str:
        result = to or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [result], **named))
        return result

    def constant(self, values: Any, dtype: str = "int64") -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape) / shape[0] ** 0.5, "float32")

    def length(self, tensor: str, axis: int) -> str:
        return self.add("Gather", self.add("Shape", tensor), self.constant([axis]), axis=0)

    def heads(self, x: str, columns: int) -> str:
        """[1,T,W] → [1,H,T,D] behind a product."""
        product = self.add("MatMul", x, self.weight(WIDTH, columns))
        apart = self.add("Reshape", product, self.constant([0, 0, -1, DEPTH]))
        return self.add("Transpose", apart, perm=[0, 2, 1, 3])

    def rotary(self, positions: str) -> tuple[str, str]:
        """Cosines and sines [1,1,T,D]."""
        frequencies = 10000.0 ** (-np.arange(0, DEPTH, 2) / DEPTH)
        turns = self.constant(np.concatenate([frequencies, frequencies]), "float32")
        column = self.add("Unsqueeze", positions, self.constant([1, 3]))
        angles = self.add("Mul", self.add("Cast", column, to_=1), turns)
        return self.add("Cos", angles), self.add("Sin", angles)

    def turned(self, x: str, rotary: tuple[str, str]) -> str:
        half = DEPTH // 2
        low, high = (
            self.add("Slice", x, *(self.constant([n]) for n in (begin, begin + half, 3)))
            for begin in (0, half)
        )
        swapped = self.add("Concat", self.add("Neg", high), low, axis=-1)
        cosines, sines = (self.add("Mul", a, b) for a, b in zip((x, swapped), rotary, strict=True))
        return self.add("Add", cosines, sines)

    def repeated(self, x: str, times: int) -> str:
        """Heads that several queries share, once for each, as exporters write it."""
        length = self.length(x, 2)
        ends = [self.constant([n]) for n in (1, 2, times, DEPTH)]
        wide = self.add("Concat", *ends[:3], length, ends[3], axis=0)
        expanded = self.add("Expand", self.add("Unsqueeze", x, self.constant([2])), wide)
        four = self.constant([2 * times])
        return self.add(
            "Reshape", expanded, self.add("Concat", ends[0], four, length, ends[3], axis=0)
        )


def decoder_model(
    kind: str = "llama",
    *,
    layers: int = 2,
    positions: str = "position_ids",
    tokens: str = "input_ids",
) -> onnx.ModelProto:
    """`llama` has grouped heads and rotary positions, `gpt2` learned ones. Without an input for
    `positions` they are counted from the length of the cache. `tokens` may be `inputs_embeds`."""
    m, rotates = _Model(seed=0), kind == "llama"
    groups = 2 if rotates else 4
    before, count = m.length("past_key_values.0.key", 2), m.length(tokens, 1)
    total = m.add("Add", before, count)
    scalars = [m.add("Squeeze", each, m.constant([0])) for each in (before, total)]
    place = positions
    if not positions:
        counted = m.add("Range", *scalars, m.constant(1))
        place = m.add("Unsqueeze", counted, m.constant([0]))
    x = tokens
    if tokens == "input_ids":
        x = m.add("Gather", m.weight(VOCABULARY, WIDTH), tokens)
    if not rotates:
        x = m.add("Add", x, m.add("Gather", m.weight(128, WIDTH), place))
    # a query sees keys up to its place in the cache that the attention mask has
    keys = m.add("Range", m.constant(0), scalars[1], m.constant(1))
    queries = m.add("Range", *scalars, m.constant(1))
    later = m.add("Greater", keys, m.add("Unsqueeze", queries, m.constant([1])))
    absent = m.add("Equal", m.add("Unsqueeze", "attention_mask", m.constant([1])), m.constant(0))
    hidden = m.add("Unsqueeze", m.add("Or", later, absent), m.constant([1]))
    mask = m.add("Where", hidden, m.constant(-1e30, "float32"), m.constant(0, "float32"))
    rotary = m.rotary(place) if rotates else ("", "")
    caches: list[str] = []
    for layer in range(layers):
        scale = m.weight(WIDTH)
        y = m.add("LayerNormalization", x, scale, m.weight(WIDTH), axis=-1)
        q, k, v = (m.heads(y, n * DEPTH) for n in (4, groups, groups))
        if rotates:
            q, k = m.turned(q, rotary), m.turned(k, rotary)
        names = [f"{layer}.key", f"{layer}.value"]
        k, v = (
            m.add("Concat", f"past_key_values.{name}", new, to=f"present.{name}", axis=-2)
            for name, new in zip(names, (k, v), strict=True)
        )
        caches += names
        if rotates:
            k, v = m.repeated(k, 2), m.repeated(v, 2)
        scores = m.add("MatMul", q, m.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = m.add("Mul", scores, m.constant(DEPTH**-0.5, "float32"))
        shares = m.add("Softmax", m.add("Add", scores, mask), axis=-1)
        seen = m.add("Transpose", m.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        seen = m.add("Reshape", seen, m.constant([0, 0, WIDTH]))
        x = m.add("Add", x, m.add("MatMul", seen, m.weight(WIDTH, WIDTH)))
    x = m.add("MatMul", m.add("Tanh", x), m.weight(WIDTH, VOCABULARY), to="logits")
    return _finished(m, groups, caches, (tokens, positions))


def _finished(
    m: _Model, groups: int, caches: Sequence[str], names: tuple[str, str]
) -> onnx.ModelProto:
    tokens, positions = names
    for node in m.nodes:
        for attribute in node.attribute:
            attribute.name = attribute.name.rstrip("_")
    whole, single = TensorProto.INT64, TensorProto.FLOAT
    value = helper.make_tensor_value_info
    rows = (
        (whole, ["batch", "tokens"])
        if tokens == "input_ids"
        else (single, ["batch", "tokens", WIDTH])
    )
    inputs = [value(tokens, *rows)]
    inputs.append(value("attention_mask", whole, ["batch", "total"]))
    inputs += [value(positions, whole, ["batch", "tokens"])] if positions else []
    inputs += [
        value(f"past_key_values.{name}", single, ["batch", groups, "past", DEPTH])
        for name in caches
    ]
    outputs = [value("logits", single, ["batch", "tokens", VOCABULARY])]
    outputs += [
        value(f"present.{name}", single, ["batch", groups, "total", DEPTH]) for name in caches
    ]
    graph = helper.make_graph(m.nodes, "decoder", inputs, outputs, m.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    return model


class GrowingLoop:
    """The original decoder in ONNX Runtime, its cache one row longer after every token."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnxruntime

        content = model.SerializeToString()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(content, options)
        self.past: dict[str, np.ndarray] = {}
        self.length = 0
        for each in self.session.get_inputs():
            if each.name.startswith("past"):
                self.past[each.name] = np.zeros((1, each.shape[1], 0, DEPTH), "float32")

    def __call__(self, tokens: Sequence[int]) -> np.ndarray:
        """The logits behind these tokens."""
        begin, self.length = self.length, self.length + len(tokens)
        feed = {
            "input_ids": np.array([tokens]),
            "attention_mask": np.ones((1, self.length), np.int64),
            **self.past,
        }
        if any(each.name == "position_ids" for each in self.session.get_inputs()):
            feed["position_ids"] = np.arange(begin, self.length)[None]
        logits, *caches = self.session.run(None, feed)
        self.past = dict(zip(self.past, caches, strict=True))
        return logits[0, -1]

"""Attention as exporters write it becomes one operator, with the result of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import folded, model_of, normal, session_of
from tilewright.graph.clean import clean
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Graph, Node
from tilewright.graph.tasks import fused_network

LOWEST = float(np.finfo(np.float32).min)
N, HEADS, DEPTH, BATCH = 10, 4, 6, 2


@dataclass
class Written:
    """A model being written; `k_heads` and so on are tensors that `attention` reads."""

    v: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)

    def node(self, kind: str, *inputs: str, **named: Any) -> str:
        name = named.pop("out", f"{kind}{len(self.nodes)}")
        self.nodes.append(helper.make_node(kind, inputs, [name], **named))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.float32(value))

    def reshape(self, tensor: str, *shape: int) -> str:
        return self.node("Reshape", tensor, self.constant(np.array(shape)))

    def heads(self, name: str, seed: int, order: tuple[int, ...], heads: int = HEADS) -> str:
        self.inputs[name] = normal(BATCH, N, heads * DEPTH, seed=seed)
        apart = self.reshape(name, BATCH, N, heads, DEPTH)
        return self.node("Transpose", apart, perm=order)

    def usual(self) -> tuple[str, str, str]:
        """Queries, keys as columns, values."""
        orders = {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1), "v": (0, 2, 1, 3)}
        q, k, v = (self.heads(name, i, order) for i, (name, order) in enumerate(orders.items()))
        return q, k, v

    def merged(self, context: str) -> None:
        ahead = self.node("Transpose", context, perm=(0, 2, 1, 3))
        rows = self.reshape(ahead, BATCH, N, HEADS * DEPTH)
        self.node("Relu", rows, out="y")

    def checked(self, opset: int = 17) -> tuple[Graph, Node]:
        model = model_of(self.nodes, self.inputs, opset=opset, constants=self.constants)
        wanted = session_of(model).run(None, self.inputs)[0]
        graph = clean(folded(model))
        np.testing.assert_allclose(run_graph(graph, self.inputs)["y"], wanted, rtol=1e-4, atol=1e-5)
        (attention,) = (node for node in graph.nodes if node.operator == "attention")
        assert not {"softmax", "batch_matmul"} & {node.operator for node in graph.nodes}
        return graph, attention


def scaled(w: Written, where: str) -> str:
    """The products with a factor in one of the usual places."""
    q, k, v = w.usual()
    w.v = v
    root = w.scalar(DEPTH**-0.25)
    match where:
        case "queries":
            q = w.node("Mul", q, w.scalar(DEPTH**-0.5))
        case "both":
            q, k = w.node("Mul", q, root), w.node("Mul", k, root)
    scores = w.node("MatMul", q, k)
    if where == "quotient":
        scores = w.node("Div", scores, w.scalar(DEPTH**0.5))
    return scores


@pytest.mark.parametrize("where", ["queries", "both", "quotient"])
def test_factors(where):
    w = Written()
    scores = scaled(w, where)
    w.merged(w.node("MatMul", w.node("Softmax", scores, axis=-1), w.v))
    graph, attention = w.checked()
    assert attention.number("scale") == pytest.approx(DEPTH**-0.5)
    assert attention.inputs == ("q", "k", "v")
    assert [node.operator for node in graph.nodes] == ["attention", "relu"]


SEEN = np.tri(N, dtype=bool)


@pytest.mark.parametrize(
    ("kind", "causal", "inputs"),
    [("where", True, 3), ("others", True, 3), ("sum", True, 3), ("slopes", False, 4),
     ("usual", False, 4), ("few", False, 4), ("data", False, 4), ("both", False, 4)],
)  # fmt: skip
def test_masks(kind, causal, inputs):
    w = Written()
    scores = scaled(w, "quotient")
    below = np.where(SEEN, np.float32(0), np.float32(LOWEST))
    match kind:
        case "where":
            scores = w.node("Where", w.constant(SEEN[None, None]), scores, w.scalar(LOWEST))
        case "others":
            scores = w.node("Where", w.constant(~SEEN), w.scalar(-np.inf), scores)
        case "sum":
            scores = w.node("Add", w.constant(below), scores)
        case "slopes":
            bias = w.constant(normal(HEADS, N, N, seed=9))
            scores = w.node("Add", w.node("Add", scores, bias), w.constant(below))
        case "usual":
            w.inputs["mask"] = normal(BATCH, 1, 1, N, seed=9)
            scores = w.node("Add", scores, "mask")
        case "few":  # numbers that leave something of a score
            scores = w.node("Where", w.constant(SEEN), scores, w.scalar(-1.0))
        case "data":
            w.inputs["seen"] = normal(BATCH, 1, N, N, seed=9) > -1
            scores = w.node("Where", "seen", scores, w.scalar(LOWEST))
        case "both":
            w.inputs["bias"] = np.where(np.arange(N) < 2, LOWEST, 0).astype(np.float32)
            scores = w.node("Add", w.node("Add", scores, "bias"), w.constant(below))
    w.merged(w.node("MatMul", w.node("Softmax", scores, axis=-1), w.v))
    _, attention = w.checked()
    assert (attention.attribute("causal"), len(attention.inputs)) == (causal, inputs)


def test_what_cannot_be_one_mask_stays_in_parts():
    """Queries that see nothing get the mean of all values, whichever mask hides them."""
    for late in (True, False):
        w = Written()
        w.inputs["seen"] = np.arange(N)[:, None] * np.ones((N, N)) > 2
        w.inputs["hidden"] = np.full((N, N), LOWEST, np.float32)
        scores = scaled(w, "quotient")
        if late:
            scores = w.node("Max", w.node("Add", scores, "hidden"), w.scalar(LOWEST))
        else:
            scores = w.node("Where", "seen", w.node("Add", scores, "hidden"), w.scalar(LOWEST))
        w.merged(w.node("MatMul", w.node("Softmax", scores, axis=-1), w.v))
        model = model_of(w.nodes, w.inputs, constants=w.constants)
        wanted = session_of(model).run(None, w.inputs)[0]
        graph = clean(folded(model))
        assert "attention" not in {node.operator for node in graph.nodes}
        np.testing.assert_allclose(run_graph(graph, w.inputs)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_values_of_more_sequences_than_scores_stay_in_parts():
    w = Written()
    for name, shape in (("q", (2, 1, 8, 4)), ("k", (2, 1, 4, 8)), ("v", (1, 2, 8, 4))):
        w.inputs[name] = normal(*shape, seed=len(w.inputs))
    shares = w.node("Softmax", w.node("MatMul", "q", "k"), axis=-1)
    w.node("MatMul", shares, "v", out="y")
    graph = clean(folded(model_of(w.nodes, w.inputs)))
    wanted = session_of(model_of(w.nodes, w.inputs)).run(None, w.inputs)[0]
    np.testing.assert_allclose(run_graph(graph, w.inputs)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_heads_that_share_keys_are_not_repeated():
    w = Written()
    q = w.heads("q", 0, (0, 2, 1, 3))
    repeated = []
    for seed, name in enumerate("kv"):
        once = w.reshape(w.heads(name, seed, (0, 2, 1, 3), 2), BATCH, 2, 1, N, DEPTH)
        often = w.node("Expand", once, w.constant(np.array([BATCH, 2, HEADS // 2, N, DEPTH])))
        repeated.append(w.reshape(often, BATCH, HEADS, N, DEPTH))
    k, v = repeated
    scores = w.node("MatMul", q, w.node("Transpose", k, perm=(0, 1, 3, 2)))
    w.merged(w.node("MatMul", w.node("Softmax", scores, axis=-1), v))
    graph, attention = w.checked()
    assert (attention.integer("heads"), attention.integer("key_heads")) == (HEADS, 2)
    assert attention.inputs == ("q", "k", "v")
    assert len(graph.nodes) == 2


def test_batch_and_heads_in_one_axis():
    """As PyTorch's multi-head attention is exported, with a mask for the axes apart."""
    w = Written()
    q, k, v = (w.reshape(heads, BATCH * HEADS, *shape) for heads, shape in
               zip(w.usual(), ((N, DEPTH), (DEPTH, N), (N, DEPTH)), strict=True))  # fmt: skip
    apart = w.reshape(w.node("MatMul", q, k), BATCH, HEADS, N, N)
    w.inputs["mask"] = normal(BATCH, 1, N, N, seed=9)
    masked = w.reshape(w.node("Add", apart, "mask"), BATCH * HEADS, N, N)
    context = w.node("MatMul", w.node("Softmax", masked, axis=-1), v)
    w.merged(w.reshape(context, BATCH, HEADS, N, DEPTH))
    graph, attention = w.checked()
    assert attention.inputs[:3] == ("q", "k", "v")
    assert [node.operator for node in graph.nodes] == ["attention", "relu"]


@pytest.mark.parametrize("mask", [False, True])
def test_the_body_of_the_operator_of_onnx(mask):
    w = Written()
    w.inputs = {name: normal(BATCH, N, count * DEPTH, seed=count) for name, count in
                (("q", HEADS), ("k", 2), ("v", 2))}  # fmt: skip
    if mask:
        w.inputs["mask"] = normal(N, N, seed=9)
    named = {"q_num_heads": HEADS, "kv_num_heads": 2, "is_causal": int(not mask)}
    w.node("Relu", w.node("Attention", *w.inputs, **named), out="y")
    _, attention = w.checked(opset=23)
    assert attention.integer("key_heads") == 2
    assert attention.attribute("causal") is not mask


def test_scores_that_others_read_stay_as_they_are():
    w = Written()
    scores = scaled(w, "quotient")
    shares = w.node("Softmax", scores, axis=-1)
    w.merged(w.node("MatMul", shares, w.v))
    model = model_of(w.nodes, w.inputs, constants=w.constants, outputs=("y", shares))
    assert "attention" not in {node.operator for node in clean(folded(model)).nodes}


def test_one_query_and_a_cache_whose_heads_are_shared():
    """As a decoder makes one token: the cache has heads first, and each serves two others."""
    w = Written()
    w.inputs = {"q": normal(BATCH, HEADS, 1, DEPTH)} | {
        name: normal(BATCH, 2, N, DEPTH, seed=seed) for seed, name in enumerate("kv", 1)
    }
    k, v = (
        w.reshape(
            w.node(
                "Expand",
                w.reshape(name, BATCH, 2, 1, N, DEPTH),
                w.constant(np.array((BATCH, 2, 2, N, DEPTH))),
            ),
            BATCH, HEADS, N, DEPTH,
        )
        for name in "kv"
    )  # fmt: skip
    scores = w.node("MatMul", "q", w.node("Transpose", k, perm=(0, 1, 3, 2)))
    context = w.node("MatMul", w.node("Softmax", scores, axis=-1), v)
    ahead = w.node("Transpose", context, perm=(0, 2, 1, 3))
    w.node("Relu", w.reshape(ahead, BATCH, 1, HEADS * DEPTH), out="y")
    graph, attention = w.checked()
    assert attention.integer("key_heads") == 2
    (call,) = fused_network(graph).calls
    assert call.inputs == ("q", "k", "v")


def test_views_of_one_tensor_are_read_by_the_kernel():
    w = Written()
    q, k, v = w.usual()
    w.inputs = {"x": normal(BATCH, N, 3 * HEADS * DEPTH)}
    w.nodes.insert(0, helper.make_node("Split", ["x"], ["q", "k", "v"], axis=2, num_outputs=3))
    w.merged(w.node("MatMul", w.node("Softmax", w.node("MatMul", q, k), axis=-1), v))
    graph, _ = w.checked(opset=18)
    first, *_ = fused_network(graph).calls
    assert [step.operator for step in first.workload.steps][:4] == [*["slice"] * 3, "attention"]
    assert first.inputs == ("x",)

"""Each rewrite of cleaning does its work and keeps the meaning."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from helpers.networks.graph_builder import Builder, assert_same, operators
from tilewright.graph.clean import REWRITES, clean
from tilewright.graph.network import AttributeValue, Graph, Node, TensorType, attributes
from tilewright.graph.operators import results_text


def cleaned(graph: Graph) -> Graph:
    result = clean(graph)
    assert_same(graph, result)
    for rewrite in REWRITES:
        assert rewrite(result).nodes == result.nodes, rewrite.__name__
    for node in result.nodes:
        assert all(name in result.types for name in (*node.inputs, *node.outputs))
    return result


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["conv2d", "grouped", "transposed", "dense"])
def test_batch_norm_goes_into_weights(kind: str, bias: bool) -> None:
    b = Builder()
    if kind == "dense":
        y, shape = b.add("dense", b.input(3, 8), b.weight(8, 6)), (6,)
    elif kind == "transposed":
        named: dict[str, AttributeValue] = {"strides": (2, 2), "padding": (1, 1, 1, 1)}
        named |= {"output_padding": (0, 1), "dilation": (1, 1), "groups": 2}
        y = b.add("conv2d_transpose", b.input(1, 8, 5, 5), b.weight(8, 3, 3, 3), **named)
        shape = (6, 1, 1)
    else:
        y, shape = b.conv(b.input(1, 8, 5, 5), 6, groups=2 if kind == "grouped" else 1), (6, 1, 1)
    if bias:
        y = b.add("add", y, b.weight(*shape))
    y = b.add("multiply", b.weight(*shape), y)
    y = b.add("add", y, b.weight(1, *shape))
    result = cleaned(b.graph(b.add("relu", y)))
    anchor = {"grouped": "conv2d", "transposed": "conv2d_transpose"}.get(kind, kind)
    assert operators(result) == [anchor, "add", "relu"]
    assert result.types[result.nodes[1].inputs[1]].shape == shape


def test_shared_result_keeps_its_scale() -> None:
    b = Builder()
    y = b.conv(b.input(1, 4, 5, 5), 4)
    z = b.add("multiply", y, b.weight(4, 1, 1))
    assert operators(cleaned(b.graph(y, z))) == ["conv2d", "multiply"]


def test_spatial_scale_is_not_folded() -> None:
    b = Builder()
    z = b.add("multiply", b.conv(b.input(1, 4, 5, 5), 4), b.weight(1, 5))
    assert operators(cleaned(b.graph(z))) == ["conv2d", "multiply"]


def test_preactivation_stays_before_the_convolution() -> None:
    b = Builder()
    y = b.add("multiply", b.input(1, 4, 5, 5), b.weight(4, 1, 1))
    y = b.add("relu", b.add("add", y, b.weight(4, 1, 1)))
    assert operators(cleaned(b.graph(b.conv(y, 4)))) == ["multiply", "add", "relu", "conv2d"]


def test_identities_and_dead_nodes_go() -> None:
    b = Builder()
    x = b.input(2, 3)
    y = b.add("transpose", x, permutation=(0, 1))
    y = b.add("slice", y, starts=(0, 0), stops=(2, 3), steps=(1, 1))
    y = b.add("concat", b.add("reshape", y, shape=(2, 3)), axis=0)
    y = b.add("pad", y, before=(0, 0), after=(0, 0), value=0.0, mode="constant")
    y = b.add("multiply", b.add("expand", y, shape=(2, 3)), b.constant(1.0))
    b.add("tanh", y)
    y = b.add("identity", b.add("relu", y))
    result = cleaned(b.graph(y))
    assert operators(result) == ["relu"]
    assert result.nodes[0].output == y


def test_outputs_that_are_inputs_constants_or_equal_survive() -> None:
    b = Builder()
    x = b.input(2, 3)
    through, again = b.add("identity", x), b.add("identity", x)
    one, two = b.add("relu", x), b.add("relu", x)
    folded = b.add("tanh", b.weight(2))
    result = cleaned(b.graph(through, again, one, two, folded))
    assert operators(result).count("relu") + operators(result).count("identity") == 5


def test_reversing_slice_is_no_identity() -> None:
    b = Builder()
    y = b.add("slice", b.input(4), starts=(3,), stops=(-1,), steps=(-1,))
    assert operators(cleaned(b.graph(y))) == ["slice"]


def test_constants_fold_and_duplicates_merge() -> None:
    b = Builder()
    x = b.input(3, 4)
    w = b.add("transpose", b.weight(5, 4), permutation=(1, 0))
    y = b.add("add", b.add("dense", x, w), b.add("dense", x, w))
    assert operators(cleaned(b.graph(y))) == ["dense", "add"]


def test_movements_merge() -> None:
    b = Builder()
    y = b.add("reshape", b.add("reshape", b.input(2, 3, 4), shape=(24,)), shape=(4, 3, 2))
    y = b.add("transpose", y, permutation=(1, 2, 0))
    y = b.add("transpose", y, permutation=(1, 0, 2))
    result = cleaned(b.graph(y))
    assert operators(result) == ["reshape", "transpose"]
    assert result.nodes[1].attribute("permutation") == (2, 1, 0)


def padded(value: float, *, relu: bool, side: int = 1) -> tuple[Builder, str]:
    b = Builder()
    x = b.input(1, 4, 6, 6)
    y = b.add("relu", x) if relu else x
    sides = (0, 0, side, side)
    return b, b.add("pad", y, before=sides, after=sides, value=value, mode="constant")


def test_zero_padding_goes_into_convolution_only() -> None:
    b, y = padded(0.0, relu=False)
    result = cleaned(b.graph(b.conv(y, 4)))
    assert operators(result) == ["conv2d"]
    assert result.nodes[0].attribute("padding") == (2, 2, 2, 2)
    b, y = padded(1.0, relu=False)
    assert "pad" in operators(cleaned(b.graph(b.conv(y, 4))))


@pytest.mark.parametrize(
    ("value", "relu", "side", "merges"),
    [
        (0.0, False, 1, False),
        (0.0, True, 1, True),
        (0.0, True, 2, False),
        (float("-inf"), False, 1, True),
        (-1.0, True, 1, False),
    ],
)
def test_padding_before_max_pool(value: float, relu: bool, side: int, merges: bool) -> None:
    b, y = padded(value, relu=relu, side=side)
    y = b.add("max_pool2d", y, kernel=(2, 2), strides=(2, 2), padding=(0,) * 4, dilation=(1, 1))
    assert ("pad" not in operators(cleaned(b.graph(y)))) == merges


@pytest.mark.parametrize(("own", "merges"), [((0,) * 4, True), ((1,) * 4, False)])
def test_padding_before_average_pool(own: tuple[int, ...], merges: bool) -> None:
    b, y = padded(0.0, relu=False)
    y = b.add("avg_pool2d", y, kernel=(3, 3), strides=(2, 2), padding=own, dilation=(1, 1),
              count_include_pad=False)  # fmt: skip
    assert ("pad" not in operators(cleaned(b.graph(y)))) == merges


def test_concatenations_share_their_prefix_in_linear_work() -> None:
    b = Builder()
    parts = [b.input(1, 2, 3, 3), b.input(1, 2, 3, 3)]
    for _ in range(12):
        parts.append(b.conv(b.add("concat", *parts, axis=1), 2))
    result = cleaned(b.graph(b.add("concat", *parts, axis=1)))
    assert all(len(n.inputs) == 2 for n in result.nodes if n.operator == "concat")


@pytest.mark.parametrize("order", range(4))
def test_gelu(order: int) -> None:
    b = Builder()
    x = b.input(3, 4)
    if order % 2:
        inner = b.add("multiply", x, b.constant(sqrt(0.5)))
    else:
        inner = b.add("divide", x, b.constant(np.float32(sqrt(2))))
    one = b.add("add", b.add("erf", inner), b.constant(1.0))
    half = b.constant(0.5)
    if order == 0:
        y = b.add("multiply", b.add("multiply", x, one), half)
    elif order == 1:
        y = b.add("multiply", b.add("multiply", x, half), one)
    elif order == 2:
        y = b.add("multiply", x, b.add("multiply", half, one))
    else:
        y = b.add("multiply", b.add("multiply", half, one), x)
    assert operators(cleaned(b.graph(y))) == ["gelu"]


def test_silu_and_hard_swish() -> None:
    b = Builder()
    x = b.input(3, 4)
    y = b.add("multiply", b.add("sigmoid", x), x)
    h = b.add("multiply", y, b.add("hard_sigmoid", y, alpha=1 / 6, beta=0.5))
    six = b.add("clip", b.add("add", h, b.constant(3.0)), minimum=0.0, maximum=6.0)
    z = b.add("divide", b.add("multiply", h, six), b.constant(6.0))
    assert operators(cleaned(b.graph(z))) == ["silu", "hard_swish", "hard_swish"]


@pytest.mark.parametrize("style", ["power", "product", "reciprocal"])
def test_layer_norm(style: str) -> None:
    b = Builder()
    x = b.input(2, 3, 8)
    centred = b.add("subtract", x, b.add("reduce_mean", x, axes=(2,), keepdims=True))
    if style == "power":
        square = b.add("power", centred, b.constant(2.0))
    else:
        again = b.add("subtract", x, b.add("reduce_mean", x, axes=(2,), keepdims=True))
        square = b.add("multiply", again, centred)
    variance = b.add("reduce_mean", square, axes=(2,), keepdims=True)
    root = b.add("sqrt", b.add("add", variance, b.constant(1e-5)))
    if style == "reciprocal":
        y = b.add("multiply", centred, b.add("reciprocal", root))
    else:
        y = b.add("divide", centred, root)
    y = b.add("add", b.add("multiply", y, b.weight(8)), b.weight(8))
    result = cleaned(b.graph(y))
    assert operators(result) == ["layer_norm"]
    assert result.nodes[0].attribute("axis") == 2


@pytest.mark.parametrize(
    "kept", ["both", "view", "apart", "narrow", "overlap", "output", "rows", "stride", "part"]
)
def test_gates_are_layers_of_their_own(kept: str) -> None:
    b = Builder()
    n = 4 if kept == "narrow" else 64
    y = b.add("add", b.weight(2 * n), b.add("dense", b.input(2, 3, 8), b.weight(8, 2 * n)))
    middle = n - 1 if kept == "overlap" else n
    rows, step = 2 if kept == "rows" else 3, 2 if kept == "stride" else 1
    left, right = (
        b.add("slice", y, starts=(0, 0, start), stops=(2, rows, stop), steps=(1, 1, step))
        for start, stop in ((0, n), (middle, middle + n))
    )
    if kept == "view":
        left, right = (b.add("reshape", part, shape=(6, n)) for part in (left, right))
        right = b.add("transpose", right, permutation=(1, 0))
        found = [left, right]
    elif kept == "apart":
        keys = b.add("tanh", left)
        found = [b.add("batch_matmul", keys, right, transpose_b=True)]
    else:
        found = [b.add("multiply", left, b.add("sigmoid", right))]
    seen = {"output": [y], "part": [left]}.get(kept, [])
    result = cleaned(b.graph(*found, *seen))
    assert operators(result).count("dense") == (2 if kept in ("both", "part") else 1)


def test_a_norm_of_what_is_not_centred() -> None:
    b = Builder()
    x = b.add("subtract", b.input(2, 8), b.input(8))
    variance = b.add("reduce_mean", b.add("multiply", x, x), axes=(1,), keepdims=True)
    y = b.add("divide", x, b.add("sqrt", b.add("add", b.constant(1e-5), variance)))
    result = cleaned(b.graph(b.add("add", b.add("multiply", y, b.weight(8)), b.weight(8))))
    assert operators(result) == ["subtract", "rms_norm", "add"]


def test_matrix_products() -> None:
    b = Builder()
    x, k = b.input(2, 3, 4), b.input(2, 5, 4)
    y = b.add("batch_matmul", x, b.add("transpose", k, permutation=(0, 2, 1)), transpose_b=False)
    y = b.add("batch_matmul", y, b.weight(1, 6, 5), transpose_b=True)
    result = cleaned(b.graph(y))
    assert operators(result) == ["batch_matmul", "dense"]
    assert result.nodes[0].attribute("transpose_b") is True


def test_powers_and_chains_of_constants() -> None:
    b = Builder()
    x = b.input(3, 4)
    y = b.add("divide", b.add("multiply", x, b.constant(3.0)), b.weight(4))
    y = b.add("subtract", b.add("add", y, b.weight(3, 1)), b.constant(0.5))
    y = b.add("power", b.add("abs", y), b.constant(3.0))
    assert operators(cleaned(b.graph(y))) == ["multiply", "add", "abs", "multiply", "multiply"]


def test_expansion_before_arithmetic_goes() -> None:
    b = Builder()
    y = b.add("expand", b.input(4, 1), shape=(2, 4, 5))
    z = b.add("add", y, b.input(2, 4, 5))
    assert operators(cleaned(b.graph(z))) == ["add"]
    alone = b.graph(b.add("add", y, b.constant(1.0)))
    assert "expand" in operators(cleaned(alone))


def test_reshapes_around_a_dense_layer_go() -> None:
    b = Builder()
    x = b.input(2, 5, 8)
    y = b.add("dense", b.add("reshape", x, shape=(10, 8)), b.weight(8, 6))
    y = b.add("relu", b.add("add", y, b.weight(6)))
    y = b.add("add", b.add("reshape", y, shape=(2, 5, 6)), b.input(2, 5, 6))
    assert operators(cleaned(b.graph(y))) == ["dense", "add", "relu", "add"]


def test_reshape_that_changes_the_last_axis_stays_before_it() -> None:
    b = Builder()
    y = b.add("reshape", b.input(2, 5, 8), shape=(10, 2, 4))
    y = b.add("add", b.add("dense", y, b.weight(4, 8)), b.weight(10, 1, 1))
    assert operators(cleaned(b.graph(y))) == ["reshape", "dense", "add"]


def test_two_batch_norms_in_a_row_merge() -> None:
    b = Builder()
    y = b.input(1, 4, 5, 5)
    for _ in range(2):
        y = b.add("multiply", y, b.weight(4, 1, 1))
        y = b.add("add", y, b.weight(4, 1, 1))
    assert operators(cleaned(b.graph(b.add("relu", y)))) == ["multiply", "add", "relu"]


def test_constants_that_overflow_stay_apart() -> None:
    b = Builder()
    y = b.add("multiply", b.input(4), b.constant(np.float32(1e30)))
    y = b.add("multiply", y, b.constant(np.float32(1e30)))
    result = clean(b.graph(y))
    assert operators(result) == ["multiply", "multiply"]


def test_opaque_nodes_pass_through() -> None:
    b = Builder()
    x = b.add("identity", b.add("relu", b.input(4)))
    kinds = (TensorType((4,)), TensorType((4,)))
    b.types.update(zip(("left", "right"), kinds, strict=True))
    named = attributes(model="AA==", results=results_text(kinds))
    node = Node(
        name="op", operator="opaque", inputs=(x,), outputs=("left", "right"), attributes=named
    )
    b.nodes.append(node)
    y = b.add("tanh", b.add("identity", "right"))
    result = clean(b.graph(y))
    assert operators(result) == ["relu", "opaque", "tanh"]
    assert result.nodes[1].inputs == result.nodes[0].outputs
    assert result.nodes[2].inputs == ("right",)


@pytest.mark.parametrize(
    ("cuts", "inputs"), [((0, 3, 8), 2), ((0, 3, 6), 3), ((2, 5, 8), 3), ((0, 8, 8), 2)]
)
def test_all_slices_of_a_tensor_are_joined_as_the_tensor(
    cuts: tuple[int, ...], inputs: int
) -> None:
    b = Builder()
    x = b.conv(b.input(1, 4, 5, 5), 8)
    parts = [
        b.add("slice", x, starts=(0, start, 0, 0), stops=(1, stop, 5, 5), steps=(1,) * 4)
        for start, stop in pairwise(cuts)
        if start < stop
    ]
    both = b.add("concat", *parts, b.add("tanh", parts[-1]), axis=1)
    (join,) = [n for n in cleaned(b.graph(both)).nodes if n.operator == "concat"]
    assert len(join.inputs) == inputs

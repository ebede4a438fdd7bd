"""Eager torch against numpy, operator by operator."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.networks.operator_cases import CASES, CONV, Case
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Array, Graph, Node, TensorType, attributes
from tilewright.graph.operators import OPERATORS

torch = pytest.importorskip("torch", reason="torch is an extra and not installed")

from tilewright.measure.peers.torch_engine import TorchGraph  # noqa: E402
from tilewright.measure.peers.torch_operators import torch_call  # noqa: E402

RANDOM = np.random.default_rng(11)


def graph_of(nodes: list[Node], values: dict[str, Array], constants: set[str]) -> Graph:
    """A graph whose types follow from the values given."""
    types = {name: TensorType(array.shape, str(array.dtype)) for name, array in values.items()}
    for node in nodes:
        kinds = tuple(types[name] for name in node.inputs)
        types[node.output] = OPERATORS[node.operator].infer(kinds, dict(node.attributes))
    return Graph(
        name="g",
        nodes=tuple(nodes),
        inputs=tuple(name for name in values if name not in constants),
        outputs=(nodes[-1].output,),
        types=types,
        constants={name: values[name] for name in constants},
    )


def check(graph: Graph, values: dict[str, Array]) -> None:
    given = {name: values[name] for name in graph.inputs}
    expected = run_graph(graph, given)
    tensors = {name: torch.from_numpy(array) for name, array in given.items()}
    with torch.inference_mode():
        results = TorchGraph(graph).run(*tensors.values())
    got = dict(zip(graph.outputs, results, strict=True))
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].numpy().dtype == array.dtype
        np.testing.assert_allclose(got[name].numpy(), array, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_operator_means_the_same(case: Case) -> None:
    operator, shapes, named = case
    values: dict[str, Array] = {
        f"x{i}": RANDOM.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)
    }
    node = Node(
        name="n",
        operator=operator,
        inputs=tuple(values),
        outputs=("y",),
        attributes=attributes(**named),
    )
    check(graph_of([node], values, set()), values)


def test_gather_counts_negative_indices_from_the_end() -> None:
    values: dict[str, Array] = {
        "x": RANDOM.standard_normal((3, 5, 2)).astype(np.float32),
        "i": np.array([[0, -1], [2, 4]], np.int64),
    }
    node = Node(
        name="n", operator="gather", inputs=("x", "i"), outputs=("y",), attributes=(("axis", 1),)
    )
    check(graph_of([node], values, set()), values)


def test_interpolation_along_an_axis() -> None:
    values: dict[str, Array] = {
        "x": RANDOM.standard_normal((3, 5, 2)).astype(np.float32),
        "i": np.array([[0, 1, 4], [2, 4, 4]], np.int32),
        "w": RANDOM.random((2, 3)).astype(np.float32),
    }
    named = attributes(axis=1)
    node = Node(
        name="n", operator="interpolate", inputs=("x", "i", "w"), outputs=("y",), attributes=named
    )
    check(graph_of([node], values, set()), values)


@pytest.mark.parametrize("place", [-1, 1, 3])
def test_rows_written_into_a_cache(place: int) -> None:
    values: dict[str, Array] = {
        "x": RANDOM.standard_normal((2, 4, 3)).astype(np.float32),
        "r": RANDOM.standard_normal((2, 2, 3)).astype(np.float32),
        "p": np.array([place]),
    }
    named = attributes(axis=1)
    node = Node(
        name="n", operator="cache_write", inputs=("x", "r", "p"), outputs=("y",), attributes=named
    )
    check(graph_of([node], values, set()), values)


@pytest.mark.parametrize("operator", ["shift_left", "shift_right"])
def test_shifts_by_any_number_of_bits(operator: str) -> None:
    values: dict[str, Array] = {
        "x": np.array([[-7], [1], [2**31 - 1]], np.int32),
        "bits": np.array([-1, 0, 3, 31, 32], np.int32),
    }
    node = Node(name="n", operator=operator, inputs=("x", "bits"), outputs=("y",))
    check(graph_of([node], values, set()), values)


@pytest.mark.parametrize("operator", ["conv2d", "conv2d_transpose", "dense"])
def test_biases_are_given_to_the_operator(operator: str) -> None:
    shapes = {"x": (2, 6, 9, 7), "w": (6, 6, 3, 3), "b": (6, 1, 1)}
    if operator == "dense":
        shapes = {"x": (2, 4), "w": (4, 6), "b": (6,)}
    values: dict[str, Array] = {
        name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    named = {
        "conv2d": attributes(**CONV),
        "conv2d_transpose": attributes(**CONV, output_padding=(3, 1)),
        "dense": (),
    }[operator]
    first = Node(name="1", operator=operator, inputs=("x", "w"), outputs=("p",), attributes=named)
    bias = Node(name="2", operator="add", inputs=("b", "p"), outputs=("q",))
    last = Node(name="3", operator="relu", inputs=("q",), outputs=("y",))
    graph = graph_of([first, bias, last], values, {"w", "b"})
    check(graph, values)
    assert [step[2] for step in TorchGraph(graph).steps] == ["q", "y"]


def test_what_torch_has_no_call_for_is_named() -> None:
    with pytest.raises(NotImplementedError, match="opaque"):
        torch_call("opaque", {})


def test_every_operator_but_opaque_has_a_call() -> None:
    known = {case[0] for case in CASES} | {"gather", "interpolate", "shift_left", "shift_right"}
    rest = set(OPERATORS) - known - {"opaque", "cache_write"}
    assert rest <= {"log", "sqrt", "rsqrt", "not", "power", "and", "or", "where"}
    for operator in rest:
        assert callable(torch_call(operator, {}))

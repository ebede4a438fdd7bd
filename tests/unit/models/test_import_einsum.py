"""Einsum as products of matrices, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from helpers.networks.onnx_models import check_node, few, model_of, normal, unfolded

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2}


def operand(letters: str, seed: int) -> np.ndarray:
    return normal(*(SIZES[letter] for letter in letters), seed=seed)


@st.composite
def equations(draw: st.DrawFn) -> str:
    terms = [
        "".join(draw(st.lists(st.sampled_from("abcde"), unique=True, min_size=1, max_size=4)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    every = sorted({*"".join(terms)})
    result = draw(st.permutations(every))[: draw(st.integers(0, len(every)))]
    return ",".join(terms) + "->" + "".join(result)


@few
@given(equations(), st.booleans())
def test_any_equation(equation: str, known: bool) -> None:
    terms = equation.partition("->")[0].split(",")
    arrays = {f"x{i}": operand(term, i) for i, term in enumerate(terms)}
    constants = {"x1": arrays.pop("x1")} if known and "x1" in arrays else {}
    names = [f"x{i}" for i in range(len(terms))]
    graph = check_node("Einsum", arrays, constants=constants, order=names, equation=equation)
    assert "opaque" not in {node.operator for node in graph.nodes}


@pytest.mark.parametrize(
    ("equation", "shapes", "operators"),
    [
        ("bind,bjnd->bnij", [(2, 3, 4, 5), (2, 6, 4, 5)], {"transpose", "batch_matmul"}),
        ("bnij,bjnd->bind", [(2, 4, 3, 6), (2, 6, 4, 5)], {"transpose", "batch_matmul"}),
        ("ij,jk", [(2, 3), (3, 4)], {"batch_matmul"}),
        ("...ij,...jk->...ik", [(2, 5, 2, 3), (2, 5, 3, 4)], {"batch_matmul"}),
        ("...i->...", [(2, 5, 3)], {"reduce_sum"}),
        ("i,j->ij", [(3,), (4,)], {"reshape", "multiply"}),
        ("i,i", [(3,), (3,)], {"reshape", "batch_matmul"}),
        (" n c h w -> n h w c ", [(1, 2, 3, 4)], {"transpose"}),
    ],
)
def test_what_it_becomes(equation, shapes, operators) -> None:
    arrays = {f"x{i}": normal(*shape, seed=i) for i, shape in enumerate(shapes)}
    graph = check_node("Einsum", arrays, equation=equation)
    assert {node.operator for node in graph.nodes} <= operators | {"reshape"}
    assert operators <= {node.operator for node in graph.nodes} | {"reshape"}


def test_a_constant_operand_makes_a_dense_layer() -> None:
    for equation in ("btd,dnh->btnh", "dnh,btd->btnh"):
        x, w = ("x", "w") if equation.startswith("b") else ("w", "x")
        data, weights = normal(2, 3, 4), normal(4, 2, 5, seed=1)
        graph = check_node(
            "Einsum", {"x": data}, constants={"w": weights}, order=[x, w], equation=equation
        )
        assert "dense" in {node.operator for node in graph.nodes}


def test_diagonals_are_left_to_others() -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], equation="ii->i")
    graph = unfolded(model_of([node], {"x": normal(3, 3)}))
    assert [node.operator for node in graph.nodes] == ["opaque"]

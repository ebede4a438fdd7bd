"""Steps on codes of 8 bits that one kernel need not do."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.networks.graph_builder import Builder, run_fused
from tilewright.graph.clean import clean
from tilewright.graph.clean.edit import found
from tilewright.graph.clean.equal_codes import Codes as ResultCodes
from tilewright.graph.clean.equal_codes import Scaled, multipliers
from tilewright.graph.evaluate import run_graph
from tilewright.graph.fuse import FusedNetwork, fuse
from tilewright.graph.network import Graph


class Codes(Builder):
    """Quantized tensors: scales are constants of one element."""

    def scalar(self, value: float) -> str:
        return self.constant(np.float32(value))

    def sums(self, x: str, filters: int = 8) -> str:
        channels = self.types[x].shape[1]
        weight = self.constant(
            self.random.integers(-9, 9, (filters, channels, 3, 3)).astype("int8")
        )
        return self.add(
            "conv2d", x, weight, strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1
        )

    def quantized(self, x: str, zero: float, dtype: str) -> str:
        limits = np.iinfo(dtype)
        rounded = self.add("round", x)
        if zero:
            rounded = self.add("add", rounded, self.scalar(zero))
        bounds = {"minimum": float(limits.min), "maximum": float(limits.max)}
        return self.add("cast", self.add("clip", rounded, **bounds), dtype=dtype)

    def requantized(self, sums: str, scale: float, zero: float, dtype: str) -> str:
        wide = self.add("cast", sums, dtype="float32")
        return self.quantized(self.add("multiply", wide, self.scalar(scale)), zero, dtype)

    def dequantized(self, x: str, scale: float, zero: float) -> str:
        wide = self.add("cast", x, dtype="float32")
        if zero:
            wide = self.add("add", wide, self.scalar(-zero))
        return self.add("multiply", wide, self.scalar(scale))


def steps(network: FusedNetwork) -> list[str]:
    return [" ".join(step.operator for step in call.workload.steps) for call in network.calls]


def same(graph: Graph, network: FusedNetwork) -> None:
    rng = np.random.default_rng(0)
    feed = {}
    for name in graph.inputs:
        kind = graph.types[name]
        limits = np.iinfo(kind.dtype)
        feed[name] = rng.integers(limits.min, limits.max + 1, kind.shape).astype(kind.dtype)
    wanted = run_graph(graph, feed)
    got = run_fused(network, feed)
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value)


KINDS = st.sampled_from(
    [("uint8", 0.0), ("uint8", 128.0), ("uint8", 7.0), ("int8", 0.0), ("int8", -128.0)]
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(KINDS, KINDS, KINDS, st.sampled_from([2.0**-4, 2.0**-6, 0.013]))
def test_a_residual_block_is_one_kernel(
    inner: tuple[str, float], residual: tuple[str, float], result: tuple[str, float], scale: float
) -> None:
    b = Codes()
    x = b.input(1, 8, 5, 5, dtype="uint8")
    r = b.input(1, 8, 5, 5, dtype=residual[0])
    y = b.requantized(b.sums(x), 2.0**-7, inner[1], inner[0])
    total = b.add("add", b.dequantized(y, scale, inner[1]), b.dequantized(r, 0.25, residual[1]))
    out = b.quantized(b.add("divide", total, b.scalar(0.5)), result[1], result[0])
    graph = b.graph(out)
    network = fuse(clean(graph))
    assert len(network.calls) == 1
    (text,) = steps(network)
    # of the codes in the middle neither the cast nor the zero point is left
    assert text.startswith("conv2d cast multiply round clip multiply cast ")
    assert text.count("cast") == 3
    assert text.count("add") == 1 + bool(residual[1]) + bool(result[1])
    same(graph, network)


def test_both_sides_of_a_sum_write_bytes() -> None:
    b = Codes()
    x = b.input(1, 4, 5, 5, dtype="uint8")
    sides = [b.requantized(b.sums(x), 2.0**-6, 128, "uint8") for _ in range(2)]
    left, right = (b.dequantized(side, 0.25, 128) for side in sides)
    graph = b.graph(b.quantized(b.add("add", left, right), 0, "uint8"))
    network = fuse(clean(graph))
    assert [str(call.workload.result) for call in network.calls] == ["uint8[1,8,5,5]"] * 2
    assert [text.count("conv2d") for text in steps(network)] == [1, 1]
    same(graph, network)


@pytest.mark.parametrize("minimum", [-200.0, -100.5])
def test_a_cast_that_changes_values_stays(minimum: float) -> None:
    b = Codes()
    sums = b.sums(b.input(1, 4, 5, 5, dtype="uint8"))
    rounded = b.add("round", b.add("multiply", b.add("cast", sums, dtype="float32"), b.scalar(0.2)))
    kept = b.add("clip", rounded, minimum=minimum, maximum=100.0)
    wide = b.add("cast", b.add("cast", kept, dtype="int8"), dtype="float32")
    (text,) = steps(fuse(b.graph(b.add("relu", wide))))
    assert text.endswith("round clip cast cast relu")


@pytest.mark.parametrize("zero", [0.0, 7.0])
def test_a_kernel_may_end_with_the_cast_that_reads_its_codes(zero: float) -> None:
    b = Codes()
    codes = b.requantized(b.sums(b.input(1, 4, 5, 5, dtype="uint8")), 2.0**-6, zero, "uint8")
    wide = b.add("cast", codes, dtype="float32")
    graph = b.graph(wide, b.add("reduce_max", wide, axes=(2, 3), keepdims=True))
    network = fuse(clean(graph))
    assert steps(network)[0].endswith("clip cast cast")
    same(graph, network)


def test_codes_that_others_read_are_written() -> None:
    b = Codes()
    codes = b.requantized(b.sums(b.input(1, 4, 5, 5, dtype="uint8")), 2.0**-6, 0, "uint8")
    graph = b.graph(codes, b.add("relu", b.dequantized(codes, 0.25, 0)))
    network = fuse(clean(graph))
    assert steps(network) == ["conv2d cast multiply round clip cast", "cast multiply relu"]
    same(graph, network)


def test_floats_beside_a_sum_are_computed_where_they_were() -> None:
    b = Codes()
    x, r = b.input(1, 4, 5, 5, dtype="uint8"), b.input(1, 8, 5, 5, dtype="int32")
    wide = b.add("cast", b.sums(x), dtype="float32")
    floats = b.add("multiply", b.add("cast", r, dtype="float32"), b.scalar(0.25))
    network = fuse(b.graph(b.add("add", wide, floats)))
    assert steps(network) == ["cast multiply", "conv2d cast add"]


@pytest.mark.parametrize(("divisor", "left"), [(0.25, "multiply"), (0.3, "divide")])
def test_a_quotient_that_is_rounded_stays_where_its_inverse_is_not_exact(
    divisor: float, left: str
) -> None:
    b = Codes()
    x = b.input(3, 4)
    rounded = b.graph(b.add("round", b.add("divide", x, b.scalar(divisor))))
    assert [node.operator for node in clean(rounded).nodes] == [left, "round"]
    b = Codes()
    plain = b.graph(b.add("relu", b.add("divide", b.input(3, 4), b.scalar(divisor))))
    assert [node.operator for node in clean(plain).nodes] == ["multiply", "relu"]


@pytest.mark.parametrize(("factor", "products"), [(0.5, 2), (0.3, 3)])
def test_a_power_of_two_behind_a_sum_goes_into_its_scales(factor: float, products: int) -> None:
    b = Codes()
    terms = [b.add("multiply", b.input(3, 4), b.scalar(s)) for s in (0.7, 1.3)]
    graph = b.graph(b.add("relu", b.add("multiply", b.add("add", *terms), b.scalar(factor))))
    result = clean(graph)
    assert [node.operator for node in result.nodes].count("multiply") == products
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=(3, 4)).astype(np.float32) for name in graph.inputs}
    (name,) = graph.outputs
    np.testing.assert_array_equal(run_graph(result, feed)[name], run_graph(graph, feed)[name])


def test_a_mean_of_codes_is_quantized_in_its_kernel() -> None:
    b = Codes()
    mean = b.add("reduce_mean", b.input(1, 8, 5, 5), axes=(2, 3), keepdims=True)
    network = fuse(b.graph(b.quantized(mean, 0, "uint8")))
    assert steps(network) == ["reduce_mean round clip cast"]


@st.composite
def _sums_of_codes(draw: st.DrawFn) -> tuple[tuple[float, float], float, tuple[float, str]]:
    """Scales of two tensors, and the scale, zero point and type of what their sum becomes: mostly
    within its limits, as quantizers choose it, but also far beyond."""
    singles = st.floats(2.0**-9, 2.0**-4, width=32)
    first, second = draw(singles), draw(singles)
    share = draw(st.floats(0.3, 1.2))
    result = draw(st.sampled_from([(0.0, "uint8"), (128.0, "uint8"), (-3.0, "int8")]))
    return (first, second), float(np.float32(share * (first + second))), result


def _all_pairs(
    scales: tuple[float, float], divisor: float, result: tuple[float, str], zero: float = 0.0
) -> Graph:
    """round((x * a + y * b) / c) as codes, of all codes x and y."""
    b = Codes()
    x, y = b.input(256, 1, dtype="uint8"), b.input(1, 256, dtype="int8")
    total = b.add("add", b.dequantized(x, scales[0], zero), b.dequantized(y, scales[1], 0))
    return b.graph(b.quantized(b.add("divide", total, b.scalar(divisor)), *result))


def _codes_of_all_pairs(graph: Graph) -> np.ndarray:
    feed = {
        graph.inputs[0]: np.arange(256, dtype=np.uint8)[:, None],
        graph.inputs[1]: np.arange(-128, 128).astype(np.int8)[None, :],
    }
    (codes,) = run_graph(graph, feed).values()
    return codes


@settings(max_examples=40, deadline=None, derandomize=True)
@given(_sums_of_codes(), st.sampled_from([0.0, 7.0]))
def test_sums_of_codes_are_multiplied_where_all_pairs_become_the_same_code(
    drawn: tuple[tuple[float, float], float, tuple[float, str]], zero: float
) -> None:
    graph = _all_pairs(*drawn, zero)
    cleaned = clean(graph)
    # a few draws have no such factors among the neighbours that are tried, and are divided on
    np.testing.assert_array_equal(_codes_of_all_pairs(cleaned), _codes_of_all_pairs(graph))


def test_most_sums_of_codes_are_divided_no_more() -> None:
    rng = np.random.default_rng(0)
    left = 0
    for _ in range(40):
        first, second = rng.uniform(0.005, 0.05, 2)
        graph = _all_pairs((first, second), rng.uniform(0.7, 1.0) * (first + second), (0, "uint8"))
        left += "divide" in {node.operator for node in clean(graph).nodes}
    assert left <= 4


def test_codes_are_the_same_where_a_product_is_contracted_with_the_sum() -> None:
    """Fractions tell what a multiply-add gives, which rounds once."""
    terms = (Scaled(-128, 127, 0.0231457), Scaled(0, 255, 0.0107391))
    codes = ResultCodes(0.0, 0.0, 255.0)
    divisor = 0.0284719
    first, second = found(multipliers(terms, divisor, codes))
    a, b = Fraction(float(np.float32(first))), Fraction(float(np.float32(second)))
    for x, y in product(range(-128, 128, 5), range(0, 256, 3)):
        total = np.float32(x) * np.float32(terms[0].factor) + np.float32(y) * np.float32(
            terms[1].factor
        )
        wanted = codes.of(np.float32(total) / np.float32(divisor))
        rounded_y = Fraction(float(np.float32(y) * np.float32(second)))
        rounded_x = Fraction(float(np.float32(x) * np.float32(first)))
        for exact in (x * a + rounded_y, rounded_x + y * b):
            assert codes.of(np.float32(float(exact))) == wanted


def test_one_tensor_of_codes_is_multiplied_too() -> None:
    b = Codes()
    x = b.input(16, 16, dtype="uint8")
    quotient = b.add("divide", b.dequantized(x, 0.0173, 0), b.scalar(0.0291))
    graph = b.graph(b.quantized(quotient, 3, "int8"))
    cleaned = clean(graph)
    operators = [node.operator for node in cleaned.nodes]
    assert operators == ["cast", "multiply", "round", "add", "clip", "cast"]
    feed = {graph.inputs[0]: np.arange(256, dtype=np.uint8).reshape(16, 16)}
    (name,) = graph.outputs
    np.testing.assert_array_equal(run_graph(cleaned, feed)[name], run_graph(graph, feed)[name])


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1, 1)])
def test_results_keep_their_rank_where_a_divisor_has_more_axes(shape: tuple[int, ...]) -> None:
    b = Codes()
    x = b.input(4, 8, dtype="uint8")
    divisor = b.constant(np.full(shape, 0.0291, np.float32))
    quotient = b.add("divide", b.dequantized(x, 0.0173, 0), divisor)
    graph = b.graph(b.quantized(quotient, 0, "uint8"))
    cleaned = clean(graph)
    feed = {graph.inputs[0]: np.arange(32, dtype=np.uint8).reshape(4, 8)}
    (name,) = graph.outputs
    wanted, got = (run_graph(each, feed)[name] for each in (graph, cleaned))
    assert got.shape == wanted.shape == cleaned.types[name].shape
    assert ("divide" in {node.operator for node in cleaned.nodes}) == (len(shape) == 4)


def test_limits_beyond_those_of_codes_are_divided() -> None:
    """Singles hold not every whole number there, so that not all of them would be tried."""
    b = Codes()
    whole = b.add("clip", b.add("round", b.input(64)), minimum=1e8, maximum=1e8 + 200)
    quotient = b.add("divide", b.add("multiply", whole, b.scalar(0.013)), b.scalar(0.0131))
    rounded = b.add("round", quotient)
    graph = b.graph(b.add("clip", rounded, minimum=99236541.0, maximum=99236796.0))
    assert "divide" in [node.operator for node in clean(graph).nodes]


def test_factors_too_far_apart_for_exact_sums_are_not_looked_for() -> None:
    codes, near = ResultCodes(0.0, 0.0, 255.0), Scaled(0, 255, 0.0173)
    assert multipliers((near, Scaled(0, 255, 1e-9)), 0.0291, codes) is None


@pytest.mark.parametrize("why", ["wide", "floats", "unlimited", "read", "endless"])
def test_what_is_no_sum_of_codes_is_divided(why: str) -> None:
    b = Codes()
    x = b.input(4, 8, dtype="int32" if why == "wide" else "uint8")
    data = b.input(4, 8) if why == "floats" else b.dequantized(x, 0.0173, 0)
    quotient = b.add("divide", data, b.scalar(1e-45 if why == "endless" else 0.0291))
    rounded = b.add("round", quotient)
    out = rounded if why == "unlimited" else b.add("clip", rounded, minimum=0.0, maximum=255.0)
    graph = b.graph(*((out, quotient) if why == "read" else (out,)))
    assert "divide" in [node.operator for node in clean(graph).nodes]

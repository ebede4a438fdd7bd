"""Every elementwise operator of the vocabulary against its numpy meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.kernels.one_kernel import random_arrays, run_kernel, step, workload
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.lower.elementwise import RULES
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Placement
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Argument, Role, Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.spaces import default_candidate
from tilewright.measure.targeting import placement_of

HERE = local_placement()
CPUS = ("haswell", "x86-64")
PLACES = [HERE, *(placement_of(f"llvm -mcpu={cpu}", None, 1) for cpu in CPUS)]
LOWEST = np.finfo(np.float32).min

NAMED = [
    ("clip", {"minimum": -0.5, "maximum": 0.75}),
    ("leaky_relu", {"alpha": 0.1}),
    ("elu", {"alpha": 1.2}),
    ("celu", {"alpha": 1.5}),
    ("celu", {"alpha": -2.5}),
    ("selu", {"alpha": 1.67, "gamma": 1.05}),
    ("thresholded_relu", {"alpha": 0.3}),
    ("shrink", {"bias": 0.3, "lambd": 0.7}),
    ("shrink", {"bias": 0.3, "lambd": -0.7}),
    ("shrink", {"bias": "inf", "lambd": "-inf"}),
    ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    ("cast", {"dtype": "int32"}),
]
"""Operators with attributes, a row for each set of them."""
UNARY = [
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "negative",
    "abs",
    "erf",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "sign",
    "reciprocal",
    "softplus",
    "silu",
    "gelu",
    "hard_swish",
    "isnan",
    "identity",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "modulo",
    "remainder",
    "equal",
    "less",
    "greater",
    "less_equal",
    "greater_equal",
    "prelu",
]
ONE_OPERAND: list[tuple[str, dict[str, Any]]] = [*((name, {}) for name in UNARY), *NAMED]
SHIFTS = ("shift_left", "shift_right")
SHAPE = (3, 37)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=3e-6, atol=3e-6
    )


def test_every_elementwise_operator_has_a_rule_and_a_case_here() -> None:
    names = {name for name, operator in OPERATORS.items() if operator.elementwise}
    assert names == set(RULES)
    cases = {name for name, _ in ONE_OPERAND}
    assert names == {*cases, *BINARY, "where", "not", "and", "or", "bitcast", *SHIFTS}


@pytest.mark.parametrize(("name", "named"), ONE_OPERAND)
def test_unary_operator_matches_numpy(name: str, named: dict[str, Any]) -> None:
    task = workload([SHAPE], step(name, 0, **named))
    x = 3 * random_arrays(task)[0]
    x.flat[:4] = [np.nan, np.inf, -np.inf, -0.0] if name not in ("sin", "cos", "cast") else 0.5
    with np.errstate(all="ignore"):
        assert_same(run_kernel(task, "injective", [x]), run_workload(task, [x]))


@pytest.mark.parametrize("name", BINARY)
def test_binary_operator_broadcasts_as_numpy(name: str) -> None:
    task = workload([(4, 1, 6), (5, 1)], step(name, 0, 1))
    a, b = random_arrays(task)
    if name == "power":
        a = np.abs(a) + 0.1
    elif name in ("equal", "less_equal"):
        a, b = np.round(a), np.round(b)
    assert_same(run_kernel(task, "injective", [a, b]), run_workload(task, [a, b]))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_keep_nan_from_either_side(name: str) -> None:
    task = workload([(16,), (16,)], step(name, 0, 1))
    a, b = random_arrays(task)
    a[2] = b[5] = np.nan
    assert_same(run_kernel(task, "injective", [a, b]), run_workload(task, [a, b]))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "multiply",
        "divide",
        "modulo",
        "remainder",
        "maximum",
        "less",
        "relu",
        "sign",
        "abs",
        "clip",
    ],
)
def test_integers_follow_numpy(name: str, dtype: str) -> None:
    count = 2 if name in BINARY else 1
    kind = TensorType((40,), dtype)
    named = {"minimum": -300.0, "maximum": 2.0} if name == "clip" else {}
    task = workload([kind] * count, step(name, *range(count), **named))
    arrays = random_arrays(task)
    if name in ("divide", "modulo", "remainder"):
        arrays[1][arrays[1] == 0] = 3
    assert_same(run_kernel(task, "injective", arrays), run_workload(task, arrays))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_by_any_number_of_bits(name: str, dtype: str) -> None:
    task = workload([TensorType((4, 1), dtype), TensorType((70,), dtype)], step(name, 0, 1))
    x = np.array([[-77], [0], [1], [126]]).astype(dtype)
    bits = np.arange(-3, 67).astype(dtype)
    assert_same(run_kernel(task, "injective", [x, bits]), run_workload(task, [x, bits]))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["modulo", "remainder"])
def test_what_is_left_of_infinities_and_zeros(name: str, dtype: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -3.0, 2.5, 1e4, np.inf, -np.inf, np.nan]).astype(dtype)
    kinds = [TensorType((9, 1), dtype), TensorType((9,), dtype)]
    arrays = [special.reshape(9, 1), special]
    task = workload(kinds, step(name, 0, 1))
    assert_same(run_kernel(task, "injective", arrays), run_workload(task, arrays))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(
    ("name", "named"),
    [case for case in (*ONE_OPERAND, *((name, {}) for name in BINARY)) if case[0] != "cast"],
)
def test_other_precisions(name: str, named: dict[str, Any], dtype: str) -> None:
    """Each result is as exact as its type: what loses digits is computed in a wider one."""
    count = 2 if name in BINARY else 1
    task = workload([TensorType((33,), dtype)] * count, step(name, *range(count), **named))
    arrays = random_arrays(task)
    if name in ("log", "sqrt", "rsqrt", "power"):
        arrays = [np.abs(array) + np.asarray(0.1, dtype) for array in arrays]
    found = run_kernel(task, "injective", arrays)
    wide = workload([TensorType((33,), "float64")] * count, task.steps[0])
    exact = run_workload(wide, [array.astype(np.float64) for array in arrays])
    assert found.dtype == np.dtype("bool" if exact.dtype == np.bool_ else dtype)
    near = {"rtol": 2e-3, "atol": 1e-6} if dtype == "float16" else {"rtol": 1e-12}
    np.testing.assert_allclose(found, exact, **near)


def test_logic_and_selection() -> None:
    kind = TensorType((30,), "bool")
    for name in ("and", "or", "equal"):
        task = workload([kind, kind], step(name, 0, 1), step("not", 2))
        arrays = random_arrays(task)
        assert_same(run_kernel(task, "injective", arrays), run_workload(task, arrays))
    task = workload([kind, (30,), (1,)], step("where", 0, 1, 2))
    arrays = random_arrays(task)
    assert_same(run_kernel(task, "injective", arrays), run_workload(task, arrays))


@pytest.mark.parametrize("length", [20, 64])
@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "int32"), ("uint8", "int8"), ("int64", "float64"), ("float16", "uint16")],
)
def test_bitcast(source: str, target: str, length: int) -> None:
    first = TensorType((length,), source)
    task = workload([first], step("bitcast", 0, dtype=target), step("bitcast", 1, dtype=source))
    arrays = random_arrays(task)
    assert_same(run_kernel(task, "injective", arrays), arrays[0])
    task = workload([first], step("bitcast", 0, dtype=target))
    assert_same(run_kernel(task, "injective", arrays), arrays[0].view(target))


@pytest.mark.parametrize("source", ["float32", "int64", "bool", "float16"])
@pytest.mark.parametrize("target", ["float32", "int32", "bool", "float64", "uint8"])
def test_cast(source: str, target: str) -> None:
    task = workload([TensorType((20,), source)], step("cast", 0, dtype=target))
    arrays = [np.abs(a) if a.dtype != np.bool_ else a for a in random_arrays(task)]
    assert_same(run_kernel(task, "injective", arrays), run_workload(task, arrays))


def test_long_chain_of_expensive_steps_builds_and_is_right() -> None:
    """A value used several times is computed once: the expression must not grow exponentially."""
    steps = [step(name, i) for i, name in enumerate(["gelu", "silu", "tanh", "softplus"] * 3)]
    task = workload([(64,)], *steps)
    arrays = random_arrays(task)
    assert_same(run_kernel(task, "injective", arrays), run_workload(task, arrays))


@pytest.mark.skipif("fma" not in HERE.target.features, reason="no fused multiply-add here")
@pytest.mark.parametrize("divisor", [0.0371, 0.5, 3.3e-3, 7.0])
def test_scaled_codes_are_divided_as_ieee_says(divisor: float) -> None:
    """By the inverse and a correction; halves between whole numbers are among the results."""
    kinds = [TensorType((1 << 18,), "int32"), TensorType(()), TensorType(())]
    roles: list[Role] = ["data", "constant", "constant"]
    arguments = [Argument(type=k, role=r) for k, r in zip(kinds, roles, strict=True)]
    steps = (step("cast", 0, dtype="float32"), step("multiply", 3, 1), step("divide", 4, 2))
    task = Workload(arguments=tuple(arguments), steps=(*steps, step("round", 5)))
    forms, settings = (PLAIN,) * 4, (("vector", 16),)
    candidate = Candidate(implementation="injective", settings=settings, forms=forms)
    kernel = build_kernel(task, candidate, HERE.target, HERE.resources)
    codes = np.random.default_rng(0).integers(-40_000, 40_000, 1 << 18).astype(np.int32)
    for scale in (divisor / 2, divisor / 10, 0.0123):
        arrays = [codes, np.asarray(scale, np.float32), np.asarray(divisor, np.float32)]
        np.testing.assert_array_equal(kernel.run(arrays), run_workload(task, arrays))
    assert "vdivps" not in rendered(task, candidate, HERE.target, HERE.resources, "asm")


def masked_codes(dtype: str) -> Workload:
    """Codes, scaled, behind a mask that is a constant, quantized."""
    able, kinds = np.iinfo(dtype), [TensorType((4, 256), "int8"), TensorType(())]
    kinds += [TensorType((4, 256)), TensorType(())]
    roles: list[Role] = ["data", "constant", "constant", "constant"]
    steps = (
        step("cast", 0, dtype="float32"), step("multiply", 4, 1), step("add", 5, 2),
        step("divide", 6, 3), step("round", 7),
        step("clip", 8, minimum=float(able.min), maximum=float(able.max)),
        step("cast", 9, dtype=dtype),
    )  # fmt: skip
    arguments = tuple(Argument(type=k, role=r) for k, r in zip(kinds, roles, strict=True))
    return Workload(arguments=arguments, steps=steps)


def check_quotients(task: Workload, place: Placement, *given: Any) -> None:
    """They are numpy's, and where products are added with one rounding nothing is divided."""
    candidate, _ = default_candidate(task, (PLAIN,) * (len(given) + 1), place)
    arrays = [np.asarray(a, k.dtype) for a, k in zip(given, task.types, strict=False)]
    with np.errstate(all="ignore"):
        wanted = run_workload(task, arrays)
    found = build_kernel(task, candidate, place.target, place.resources).run(arrays)
    np.testing.assert_array_equal(found, wanted)
    if "fma" in place.target.features:
        text = rendered(task, candidate, place.target, place.resources, "asm")
        assert "divps" not in text


@pytest.mark.parametrize("place", PLACES, ids=["here", *CPUS])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_what_a_mask_hides_has_the_code_at_the_limit(place: Placement, dtype: str) -> None:
    """Halves between codes, and at the limits of codes, are among what it does not hide."""
    mask, codes = np.zeros((4, 256)), np.tile(np.arange(-128, 128), (4, 1))
    mask[1:] = np.array([[-np.inf], [LOWEST], [np.inf]])
    for factor in (0.5, 1.5, 3.5, 128.5):
        check_quotients(masked_codes(dtype), place, codes, 0.05 * factor, mask, 0.05)


@pytest.mark.parametrize("place", PLACES, ids=["here", *CPUS])
def test_quotients_of_infinities_are_infinite_and_nan_stays(place: Placement) -> None:
    task, mask = masked_codes("int8"), np.zeros((4, 256))
    mask[:, ::2] = np.array([[-np.inf], [LOWEST], [np.inf], [np.nan]])
    task = replace(task, steps=task.steps[:5])
    for divisor in (0.05, -0.05, 300.0):
        check_quotients(task, place, np.tile(np.arange(-128, 128), (4, 1)), 0.02, mask, divisor)


@pytest.mark.parametrize("place", PLACES, ids=["here", *CPUS])
def test_whole_numbers_may_be_a_mask(place: Placement) -> None:
    """As in (1 - m) times the lowest single: what is multiplied is no code."""
    kinds = [TensorType((256,), "int8"), TensorType((256,), "int32"), *[TensorType(())] * 3]
    roles: list[Role] = ["data", "data", "constant", "constant", "constant"]
    arguments = [Argument(type=k, role=r) for k, r in zip(kinds, roles, strict=True)]
    steps = (
        step("cast", 0, dtype="float32"), step("multiply", 5, 2), step("cast", 1, dtype="float32"),
        step("multiply", 7, 3), step("add", 6, 8), step("divide", 9, 4), step("round", 10),
        step("clip", 11, minimum=-128.0, maximum=127.0), step("cast", 12, dtype="int8"),
    )  # fmt: skip
    task = Workload(arguments=tuple(arguments), steps=steps)
    check_quotients(task, place, np.arange(-128, 128), np.arange(256) % 2, 0.02, LOWEST, 0.05)

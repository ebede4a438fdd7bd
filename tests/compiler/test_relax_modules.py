"""Modules of Relax as files and as objects: what is read, what is named, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm")

import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.networks.relax_modules import by_onnx_runtime, function_of
from tilewright.compiler.relax_export import conversion
from tilewright.compiler.relax_export.conversion import to_onnx
from tilewright.compiler.relax_export.reading import read_module
from tilewright.compiler.relax_export.writer import scalar
from tilewright.core.errors import ModelError, NotCompilable, UsageError
from tilewright.models import ModelOptions
from tilewright.models.given import given_model, is_model
from tilewright.models.shape_grid import axes_among

WEIGHT = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
SCRIPT = """
# a comment
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y
"""


@I.ir_module
class Several:
    """A function that calls another one twice, a branch, a tuple, and sizes with names."""

    @R.function
    def twice(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        R.func_attr({"private": True})
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), flag: R.Tensor((), "bool")) -> R.Tuple(
        R.Tensor(("n * 2", 2), "float32"), R.Tuple(R.Tensor(("n", 4), "float32"))
    ):
        n = T.int64()
        cls = Several
        a = cls.twice(x)
        b = cls.twice(a)
        if flag:
            c = R.nn.relu(b)
            d = R.add(c, a)
        else:
            d = R.negative(b)
        e = R.reshape(d, (n * 2, 2))
        f = R.strided_slice(R.concat((d, d), axis=0), axes=[0], begin=[n - 1], end=[n * 2 - 1])
        return (e, (f,))


@I.ir_module
class Means:
    """A function whose result hangs on a size, for operands of two sizes."""

    @R.function
    def mean(x: R.Tensor(("n", 8), "float32")) -> R.Tensor((1, 8), "float32"):
        R.func_attr({"private": True})
        n = T.int64()
        with R.dataflow():
            total = R.sum(x, axis=[0], keepdims=True)
            y = R.divide(total, R.astype(R.shape_to_tensor(R.shape([n])), "float32"))
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((16, 8), "float32")) -> R.Tuple(
        R.Tensor((1, 8), "float32"), R.Tensor((1, 8), "float32")
    ):
        cls = Means
        a = cls.mean(x)
        b = cls.mean(y)
        return (a, b)


ROWS = relax.Var("x", relax.TensorType((2, 4), "float32"))


def constants() -> tvm.IRModule:
    return function_of([ROWS], lambda _: op.matmul(ROWS, relax.const(WEIGHT)))


def weighted(inputs: int | None = 1) -> tvm.IRModule:
    kinds = {"w": (4, 4), "bias": (4,)}
    w, bias = (relax.Var(name, relax.TensorType(s, "float32")) for name, s in kinds.items())
    return function_of(
        [ROWS, w, bias],
        lambda builder: op.add(builder.emit(op.matmul(ROWS, w)), bias),
        attrs=None if inputs is None else {"num_input": inputs},
    )


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


X = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)


def test_json_and_scripts_are_the_module(tmp_path: Path) -> None:
    module = constants()
    for text in ("m.json", tvm.ir.save_json(module)), ("m.py", module.script(show_meta=True)):
        found = read_module(file(tmp_path, *text))
        np.testing.assert_allclose(by_onnx_runtime(found, X)[0], X @ WEIGHT, rtol=1e-5)
    (found,) = by_onnx_runtime(read_module(file(tmp_path, "own.py", SCRIPT)), X)
    np.testing.assert_array_equal(found, np.maximum(X, 0))
    function = SCRIPT.partition("class Module:\n")[0].replace("@I.ir_module", "")
    lines = SCRIPT.partition("class Module:\n")[2].splitlines()
    alone = function + "\n".join(line.removeprefix("    ") for line in lines)
    (found,) = by_onnx_runtime(read_module(file(tmp_path, "function.py", alone)), X)
    np.testing.assert_array_equal(found, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "not what tvm.ir.save_json writes"),
        ("a.json", "[1, 2]", "not what tvm.ir.save_json writes|not a tvm.IRModule"),
        ("a.py", "class X(", "is no Python"),
        ("a.py", SCRIPT + "\nprint('hello')\n", "line 15: only imports and one module"),
        ("a.py", SCRIPT + "\nmade = Module\n", "line 15: only imports"),
        ("a.py", "", "holds 0 modules and functions"),
        ("a.py", SCRIPT.replace("relu", "frobnicate"), "is no TVMScript of Relax"),
    ],
)
def test_what_is_no_module(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read_module(file(tmp_path, name, text))


def test_a_script_is_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for line in (f"open({str(trap)!r}, 'w')", f"x = open({str(trap)!r}, 'w')"):
        with pytest.raises(ModelError, match="only imports"):
            read_module(file(tmp_path, "a.py", SCRIPT + "\n" + line + "\n"))
    assert not trap.exists()


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_functions_branches_tuples_and_names_of_sizes(count: int, flag: bool) -> None:
    x = np.random.default_rng(2).standard_normal((count, 4)).astype(np.float32)
    found = by_onnx_runtime(Several, x, np.array(flag))
    b = 4 * x
    d = np.maximum(b, 0) + 2 * x if flag else -b
    np.testing.assert_allclose(found[0], d.reshape(-1, 2), rtol=1e-6)
    np.testing.assert_allclose(found[1], np.concatenate([d, d])[count - 1 : 2 * count - 1])


def test_sizes_with_names_are_those_of_each_call() -> None:
    ones = (np.ones((rows, 8), np.float32) for rows in (4, 16))
    for found in by_onnx_runtime(Means, *ones):
        np.testing.assert_array_equal(found, np.ones((1, 8), np.float32))


def test_functions_that_multiply_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_MOST_WRITTEN", 3)
    with pytest.raises(ModelError, match="written out the module has over 3 calls"):
        to_onnx(Several, "m", 0)


def test_a_number_that_its_type_cannot_hold() -> None:
    for value in (300.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(NotCompilable, match="is no number of type uint8"):
            scalar(value, "uint8")


def test_names_of_inputs_outputs_and_axes() -> None:
    model, said = to_onnx(Several, "several", 0)
    assert [value.name for value in model.graph.input] == ["x", "flag"]
    assert [value.name for value in model.graph.output] == ["output_0", "output_1"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert said == ""


def test_named_axes_may_have_several_sizes(tmp_path: Path) -> None:
    file = tmp_path / "several.json"
    file.write_text(tvm.ir.save_json(Several))
    assert axes_among(str(file), {"n": (2, 6), "x": (2, 4)}) == {"n": (2, 6)}


def test_weights_without_values_are_random_and_it_is_said() -> None:
    models = [to_onnx(weighted(), "w", seed) for seed in (0, 0, 1)]
    assert models[0][1] == "2 weights of the module have no values: they are random numbers."
    first, again, other = (model.SerializeToString() for model, _ in models)
    assert first == again != other
    assert [value.name for value in models[0][0].graph.input] == ["x"]
    assert {tensor.name for tensor in models[0][0].graph.initializer} == {"w", "bias"}


def test_weights_that_python_gives(tmp_path: Path) -> None:
    bias = np.float32([1, 2, 3, 4])
    values = [tvm.runtime.tensor(WEIGHT), tvm.runtime.tensor(bias)]
    for weights in ({"w": WEIGHT, "bias": bias}, {"main": values}):
        assert is_model((weighted(), weights))
        made = given_model((weighted(), weights), ModelOptions(), tmp_path)
        assert made.origin == "tvm.IRModule with the functions main"
        (found,) = by_onnx_runtime(read_module(Path(made.argument)), X)
        np.testing.assert_allclose(found, X @ WEIGHT + bias, rtol=1e-5)
    with pytest.raises(UsageError, match="no parameter 'v'"):
        given_model((weighted(), {"v": bias}), ModelOptions(), tmp_path)
    with pytest.raises(UsageError, match="weights of a tvm.IRModule"):
        given_model((weighted(), 3), ModelOptions(), tmp_path)


def test_weights_among_the_first_parameters(tmp_path: Path) -> None:
    """A parameter that has a value is no input, and those behind the inputs stay weights."""
    made = given_model((weighted(2), {"w": WEIGHT}), ModelOptions(), tmp_path)
    model, said = to_onnx(read_module(Path(made.argument)), "m", 0)
    assert [value.name for value in model.graph.input] == ["x"] and said.startswith("1 weights")


@pytest.mark.parametrize(
    ("count", "weights", "words"),
    [
        (1, {"main": [WEIGHT] * 5}, "5 weights for the 2 parameters"),
        (1, {"main": [WEIGHT]}, "1 weights for the 2 parameters"),
        (None, {"main": [WEIGHT] * 5}, "5 weights for the 3 parameters"),
        (1, {1: WEIGHT}, "no parameter '1'"),
        (1, {"w": WEIGHT[:1]}, r"'w' is float32\[1, 4\], its parameter .*\(4, 4\)"),
        (1, {"w": WEIGHT.ravel()}, r"'w' is float32\[16\], its parameter"),
        (1, {"w": WEIGHT.astype(np.float64)}, r"'w' is float64\[4, 4\], its .*float32"),
        (1, {"w": [1.0]}, "'w' is a list, not an array"),
    ],
)
def test_weights_that_do_not_fit(
    tmp_path: Path, count: int | None, weights: dict[Any, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        given_model((weighted(count), weights), ModelOptions(), tmp_path)


def test_weights_are_those_of_the_public_function(tmp_path: Path) -> None:
    public = weighted()["main"].with_attr("global_symbol", "zz")
    private = weighted()["main"].without_attr("global_symbol")
    module = tvm.IRModule({"aaa": private, "zz": public})
    made = given_model((module, {"w": WEIGHT}), ModelOptions(), tmp_path)
    assert to_onnx(read_module(Path(made.argument)), "m", 0)[1].startswith("1 weights")
    for other in (tvm.IRModule({}), tvm.IRModule({"a": public, "b": public})):
        with pytest.raises(UsageError, match="only public function"):
            given_model((other, {"w": WEIGHT}), ModelOptions(), tmp_path)


def test_all_that_cannot_be_taken_is_told_at_once() -> None:
    def result(builder: relax.BlockBuilder) -> Any:
        a = builder.emit_te(tvm.topi.nn.relu, ROWS)
        b = builder.emit(op.nn.relu(a))
        for _ in range(2):
            b = builder.emit(op.atan2(b, ROWS))
        c = builder.emit(op.median(ROWS, axis=[1]))
        codes = builder.emit(op.astype(ROWS, "int32"))
        return relax.Tuple([b, c, builder.emit(op.left_shift(codes, codes))])

    with pytest.raises(ModelError) as caught:
        to_onnx(function_of([ROWS], result), "m", 0)
    told = caught.value.message
    assert "relax.call_tir of 'relu', a kernel and no operator (1×" in told
    assert "relax.median (1×" in told and "relax.left_shift, where elements of type int32" in told
    assert "first for" in told and "LegalizeOps" in str(caught.value.hint)
    assert "atan2 (2×" in told, "also behind what cannot be taken"


def test_modules_without_one_function_to_take() -> None:
    alone = function_of([ROWS], lambda _: op.nn.relu(ROWS), name="forward")
    assert to_onnx(alone, "m", 0)[0].graph.node[0].op_type == "Relu"
    several = tvm.IRModule({"a": alone["forward"], "b": alone["forward"]})
    with pytest.raises(ModelError, match="no function 'main' but 'a', 'b': which one"):
        to_onnx(several, "m", 0)
    with pytest.raises(ModelError, match="no function of Relax"):
        to_onnx(tvm.IRModule({}), "m", 0)
    shape = relax.Var("n", relax.ShapeType(ndim=1))
    with pytest.raises(ModelError, match="parameter 'n' is .*, not a tensor"):
        to_onnx(function_of([shape, ROWS], lambda _: op.nn.relu(ROWS)), "m", 0)


VIEWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "turn": (lambda v, _: op.permute_dims(v), lambda v, _: v.transpose()),
    "flip": (op.flip, np.flip),
    "more": (op.expand_dims, np.expand_dims),
    "flat": (lambda v, _: op.reshape(v, (-1,)), lambda v, _: v.reshape(-1)),
    "tile": (lambda v, _: op.tile(v, (2, 1)), lambda v, _: np.tile(v, (2, 1))),
    "part": (
        lambda v, axis: op.strided_slice(v, [axis], [0], [1]),
        lambda v, axis: np.take(v, [0], axis),
    ),
    "twice": (lambda v, axis: op.repeat(v, 2, axis), lambda v, axis: np.repeat(v, 2, axis)),
    "join": (lambda v, axis: op.concat([v, v], axis), lambda v, axis: np.concatenate([v, v], axis)),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 9)), min_size=1, max_size=5),
)
def test_random_chains_of_views(shape: list[int], steps: list[tuple[str, int]]) -> None:
    array = wanted = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = relax.Var("x", relax.TensorType(shape, "float32"))

    def result(builder: relax.BlockBuilder) -> Any:
        nonlocal wanted
        value: Any = x
        for name, place in steps:
            ours, numpys = VIEWS[name]
            axis = place % wanted.ndim
            value, wanted = builder.emit(ours(value, axis)), numpys(wanted, axis)
        return op.negative(value)

    module = function_of([x], result)
    np.testing.assert_array_equal(by_onnx_runtime(module, array)[0], -wanted)


def test_the_model_is_as_onnx_has_it() -> None:
    for module in (Several, constants(), weighted()):
        onnx.checker.check_model(to_onnx(module, "m", 0)[0], full_check=True)

"""Models that are damaged or meant to harm: each is refused in words, or loads and is right."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from helpers.networks.onnx_models import normal
from tilewright.core.errors import ModelError
from tilewright.graph.clean.simplify import FOLDED_BYTES
from tilewright.graph.evaluate import run_graph
from tilewright.models import ModelOptions
from tilewright.models.loading import load

pytestmark = pytest.mark.regression

node = helper.make_node
Change = Callable[[onnx.ModelProto], None]


def integers(*values: int) -> Any:
    return np.array(values, np.int64)


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, Any] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    shape: Sequence[int] = (2, 4),
) -> onnx.ModelProto:
    """A model that nothing has looked at yet, of the input x."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def stored(folder: Path, made: onnx.ModelProto | bytes) -> str:
    path = folder / "model.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return str(path)


def refused(
    folder: Path, made: onnx.ModelProto | bytes, words: str, options: ModelOptions | None = None
) -> ModelError:
    with pytest.raises(ModelError, match=words) as caught:
        load(stored(folder, made), options or ModelOptions())
    assert caught.value.message.isprintable()
    return caught.value


def relu() -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"], name="r")])


def added(name: str = "w", shape: Sequence[int] = (2, 4)) -> onnx.ModelProto:
    return model([node("Add", ["x", name], ["y"])], {name: np.ones(shape, np.float32)})


def _element(made: onnx.ModelProto, element: int) -> None:
    made.graph.input[0].type.tensor_type.elem_type = element


def _attribute(made: onnx.ModelProto, **fields: Any) -> None:
    made.graph.node[0].op_type = "LeakyRelu"
    attribute = made.graph.node[0].attribute.add(name="alpha")
    for name, value in fields.items():
        setattr(attribute, name, value)


CHANGES: dict[str, tuple[Change, str]] = {
    "unknown element type": (lambda m: _element(m, 77), "element type 77"),
    "text": (lambda m: _element(m, TensorProto.STRING), "input 'x'.*holds text"),
    "a domain that is not named": (
        lambda m: setattr(m.graph.node[0], "domain", "their.own"),
        "node 'r'.*'their.own', an operator set that the model does not name",
    ),
    "an operator set named twice": (
        lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 9)),
        "two versions",
    ),
    "an output listed twice": (
        lambda m: m.graph.output.append(m.graph.output[0]),
        "lists the output 'y' twice",
    ),
    "an input listed twice": (
        lambda m: m.graph.input.append(m.graph.input[0]),
        "lists the input 'x' twice",
    ),
    "a tensor written twice": (
        lambda m: m.graph.node.append(node("Neg", ["x"], ["y"], name="again")),
        "node 'again'.*writes 'y', which is written before",
    ),
    "nodes in a circle": (
        lambda m: m.graph.node.extend(
            [node("Add", ["x", "q"], ["p"], name="one"), node("Neg", ["p"], ["q"])]),
        "node 'one'.*reads 'q', which it or a later node writes: nodes in a circle",
    ),
    "a node that reads its own result": (
        lambda m: m.graph.node.append(node("Add", ["x", "p"], ["p"], name="one")),
        "node 'one'.*reads 'p', which it or a later",
    ),
    "a tensor that nothing writes": (
        lambda m: m.graph.node.append(node("Neg", ["q"], ["p"], name="one")),
        "node 'one'.*reads 'q', which nothing writes",
    ),
    "an input written": (
        lambda m: m.graph.node.append(node("Neg", ["y"], ["x"], name="again")),
        "node 'again'.*writes 'x'",
    ),
    "no name": (lambda m: setattr(m.graph.output[0], "name", ""), "has no name"),
    "an unknown attribute": (lambda m: m.graph.node[0].attribute.append(
        helper.make_attribute("alpha", 1.0)), "node 'r'.*alpha"),
    "an attribute of another type": (lambda m: _attribute(m, type=2, i=3), "alpha"),
    "an attribute of no type": (lambda m: _attribute(m), "is no 'LeakyRelu'"),
    "an attribute of a function": (
        lambda m: _attribute(m, type=1, ref_attr_name="q"), "refers to one of a function"),
    "an operand left out": (
        lambda m: m.graph.node[0].input.__setitem__(0, ""), "is no 'Relu' as ONNX has it"),
    "too many operands": (lambda m: m.graph.node[0].input.append("x"), "is no 'Relu'"),
    "a tensor of no type": (
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("t", 0, [1])),
        "tensor 't'.*element type 0"),
    "an IR version to come": (lambda m: setattr(m, "ir_version", 1 << 40), "IR version"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_models_that_are_not_as_onnx_has_them(tmp_path: Path, name: str) -> None:
    change, words = CHANGES[name]
    made = relu()
    load(stored(tmp_path, made))
    change(made)
    refused(tmp_path, made, words)


WEIGHTS: dict[str, tuple[Change, str]] = {
    "a negative axis": (lambda m: m.graph.initializer[0].dims.__setitem__(0, -2), "not possible"),
    "more than there is": (
        lambda m: m.graph.initializer[0].dims.__setitem__(0, 1 << 62), "cut short or broken"),
    "listed twice": (
        lambda m: m.graph.initializer.append(m.graph.initializer[0]), "constant 'w' twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_cannot_be(tmp_path: Path, name: str) -> None:
    change, words = WEIGHTS[name]
    made = added()
    change(made)
    refused(tmp_path, made, words)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    content = relu().SerializeToString().replace(b"\x22\x04Relu", b"\x22\x04Re\xe1u")
    refused(tmp_path, content, "no text")


def outside(folder: Path, **entries: str) -> onnx.ModelProto:
    made = added()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "w.bin").write_bytes(np.ones((2, 4), np.float32).tobytes())
    return made


def test_external_weights_with_a_second_hard_link(tmp_path: Path) -> None:
    made = outside(tmp_path)
    (tmp_path / "again.bin").hardlink_to(tmp_path / "w.bin")
    network = load(stored(tmp_path, made))
    x = normal(2, 4)
    np.testing.assert_allclose(run_graph(network.graph, {"x": x})["y"], x + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("entries", "words"),
    [({"length": "0"}, "does not fit its shape"), ({"length": "8"}, "does not fit its shape"),
     ({"length": "٣٢"}, "broken offset"), ({"offset": "-4"}, "broken offset"),
     ({"offset": "9" * 30}, "broken offset"), ({"offset": "9"}, "ends before it"),
     ({"location": "a" * 5000}, "'w'")],
)  # fmt: skip
def test_external_weights_elsewhere_than_they_say(
    tmp_path: Path, entries: dict[str, str], words: str
) -> None:
    refused(tmp_path, outside(tmp_path, **entries), words)


def test_external_weights_larger_than_the_machine(tmp_path: Path) -> None:
    made = outside(tmp_path)
    os.truncate(tmp_path / "w.bin", 1 << 42)  # a file with holes takes no disk
    made.graph.initializer[0].dims[0] = 1 << 38
    refused(tmp_path, made, "more than the memory")


def test_files_of_two_gigabytes_and_more(tmp_path: Path) -> None:
    """Files with holes take no disk, and nothing of them is read."""
    made = outside(tmp_path)
    os.truncate(tmp_path / "w.bin", 1 << 31)
    made.graph.initializer[0].dims[:] = [1 << 20, 513]
    refused(tmp_path, made, "weight 'w'.*is cut short: 'w.bin' ends before it")
    (tmp_path / "w.bin").unlink()
    refused(tmp_path, made, "weight 'w'.*is missing: its file 'w.bin'")
    path = Path(stored(tmp_path, relu()))
    os.truncate(path, (1 << 31) + 1)
    with pytest.raises(ModelError, match="at most 2 GiB can be read"):
        load(str(path))


def test_a_pipe_as_weights_or_as_a_model(tmp_path: Path) -> None:
    made = outside(tmp_path)
    (tmp_path / "w.bin").unlink()
    os.mkfifo(tmp_path / "w.bin")
    refused(tmp_path, made, "named pipe")
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelError, match="named pipe"):
        load(str(tmp_path / "pipe.onnx"))
    with pytest.raises(ModelError, match="is a device"):
        load("/dev/zero")


LARGE = {
    "filled": (node("ConstantOfShape", ["s"], ["b"]), {"s": integers(10**5, 10**6)}),
    "expanded": (node("Expand", ["c", "s"], ["b"]), {"s": integers(10**5, 10**6)}),
    "tiled": (node("Tile", ["c", "s"], ["b"]), {"s": integers(10**10)}),
    "padded": (node("Pad", ["c", "s"], ["b"]), {"s": integers(0, 10**10)}),
    "multiplied": (
        node("MatMul", ["u", "v"], ["b"]),
        {"u": np.ones((10**5, 1), np.float32), "v": np.ones((1, 10**5), np.float32)},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_constants_that_would_grow_stay_uncomputed(tmp_path: Path, name: str) -> None:
    first, constants = LARGE[name]
    made = model(
        [first, node("ReduceMax", ["b"], ["m"]), node("Add", ["x", "m"], ["y"])],
        {"c": np.ones(1, np.float32), **constants},
    )
    graph = load(stored(tmp_path, made)).graph
    assert sum(array.nbytes for array in graph.constants.values()) < FOLDED_BYTES
    assert any(kind.bytes > 1 << 34 for kind in graph.types.values())


@pytest.mark.parametrize("last", [1e10, float("nan"), float("inf")])
def test_ranges_without_end(tmp_path: Path, last: float) -> None:
    constants = {"a": np.float32(0), "b": np.float32(last), "c": np.float32(0.1)}
    nodes = [node("Range", ["a", "b", "c"], ["r"], name="range")]
    nodes += [node("ReduceMax", ["r"], ["m"]), node("Add", ["x", "m"], ["y"])]
    refused(tmp_path, model(nodes, constants), "node 'range'")


@pytest.mark.parametrize("data", ["x", "w"])
@pytest.mark.parametrize("index", [[7], [0, 2], [-3, 0]])
def test_known_indices_outside_their_axis(tmp_path: Path, data: str, index: list[int]) -> None:
    constants = {"w": np.ones((2, 4), np.float32), "i": integers(*index)}
    nodes = [node("Gather", [data, "i"], ["g"]), node("ReduceMax", ["g"], ["m"])]
    nodes.append(node("Add", ["x", "m"], ["y"]))
    refused(tmp_path, model(nodes, constants), "is outside -2 … 1")


def function(name: str, *called: str) -> onnx.FunctionProto:
    """A function that calls others in a row."""
    names = ["a", *(f"t{i}" for i in range(len(called) - 1)), "b"]
    nodes = [node(c, [names[i]], [names[i + 1]], domain="d") for i, c in enumerate(called)]
    sets = [helper.make_opsetid("d", 1), helper.make_opsetid("", 17)]
    return helper.make_function(
        "d", name, ["a"], ["b"], nodes or [node("Relu", ["a"], ["b"])], sets
    )


def calling(name: str, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    made = model([node(name, ["x"], ["y"], domain="d")])
    made.opset_import.append(helper.make_opsetid("d", 1))
    made.functions.extend(functions)
    return made


def test_functions_that_call_themselves(tmp_path: Path) -> None:
    refused(tmp_path, calling("f", [function("f", "f")]), "functions in the model")
    both = [function("f", "g"), function("g", "f")]
    refused(tmp_path, calling("f", both), "functions in the model")


def test_functions_with_operators_that_do_not_exist(tmp_path: Path) -> None:
    made = calling("f", [function("f")])
    load(stored(tmp_path, made))
    made.functions[0].node[0].op_type = "Frobnicate"
    refused(tmp_path, made, "Frobnicate")


def test_functions_that_read_from_around_them(tmp_path: Path) -> None:
    body = function("f")
    body.node[0].input[0] = "x"
    refused(tmp_path, calling("f", [body]), "function 'f'.*reads 'x' from outside its body")


def looping(inner: str, result: str) -> onnx.ModelProto:
    """A Loop of so many turns as the data say, whose body reads `inner` and gives `result`."""
    made = [node("Neg", [inner], ["n"]), node("Constant", [], ["k"], value_float=1.0)]
    made.append(node("Identity", ["going"], ["on"]))
    names = {"turn": TensorProto.INT64, "going": TensorProto.BOOL}
    given = [helper.make_tensor_value_info(name, kind, []) for name, kind in names.items()]
    given.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 4]))
    results = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info(result, TensorProto.FLOAT, [2, 4]),
    ]
    body = helper.make_graph(made, "body", given, results)
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["c"], to=TensorProto.INT64),
        node("Loop", ["c", "", "x"], ["y"], name="turns", body=body),
    ]
    return model(nodes)


@pytest.mark.parametrize(("inner", "result"), [("x", "n"), ("k", "x")])
def test_loops_that_read_from_around_them(tmp_path: Path, inner: str, result: str) -> None:
    made = looping(inner, result)
    if inner == "k":
        for attribute in made.graph.node[2].attribute:
            del attribute.g.node[0]
    words = "node 'turns'.*'Loop' reads 'x' from outside"
    error = refused(tmp_path, made, words, ModelOptions(islands="refuse"))
    assert error.hint


@pytest.mark.parametrize(
    ("inner", "result", "words"),
    [("nowhere", "n", "do not fit together.*node name: choice.*Neg"),
     ("x", "never", "node 'choice'.*'never'")],
)  # fmt: skip
def test_broken_branches(tmp_path: Path, inner: str, result: str, words: str) -> None:
    value = helper.make_tensor_value_info(result, TensorProto.FLOAT, [2, 4])
    branch = helper.make_graph([node("Neg", [inner], ["n"])], "branch", [], [value])
    nodes = [
        node("Constant", [], ["k"], value_int=1),
        node("Cast", ["k"], ["c"], to=TensorProto.BOOL),
        node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    refused(tmp_path, model(nodes), words)


@pytest.mark.parametrize(
    ("operator", "bias", "kernel", "words"),
    [("Conv", 4, [5, 5], "kernel_shape"), ("Conv", 1, [3, 3], "bias"), ("Conv", 3, [3, 3], "bias"),
     ("ConvTranspose", 1, [3, 3], "bias")],
)  # fmt: skip
def test_convolutions_whose_parts_do_not_fit(
    tmp_path: Path, operator: str, bias: int, kernel: list[int], words: str
) -> None:
    constants = {"w": normal(4, 4, 3, 3), "b": normal(bias)}
    nodes = [node(operator, ["x", "w", "b"], ["y"], name="c", kernel_shape=kernel)]
    made = model(nodes, constants, shape=[1, 4, 9, 9])
    refused(tmp_path, made, rf"(node 'c'.*{words}|shapes in the model)")

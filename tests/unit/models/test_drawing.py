"""The chosen network as an ONNX file to look at."""

from __future__ import annotations

from pathlib import Path

import onnx

from tilewright.core.results import ChoiceRow
from tilewright.models.drawing import DOMAIN, write_drawing


def row(call: str, inputs: tuple[str, ...], output: str, **named: object) -> ChoiceRow:
    shared = {
        "call": call,
        "anchor": "conv2d",
        "implementation": "conv2d_direct",
        "layouts": ("blocked16",) * (len(inputs) + 1),
        "changed": (),
        "kernel_s": 12.5e-6,
        "change_s": 0.0,
        "measured": True,
        "inputs": inputs,
        "output": output,
    }
    return ChoiceRow(**{**shared, **named})  # pyright: ignore[reportArgumentType]


def test_calls_are_nodes_and_copies_are_nodes_of_their_own(tmp_path: Path) -> None:
    choices = (
        row("first", ("x",), "a"),
        row("second", ("a", "x"), "y", changed=("x",), layouts=("plain", "blocked32", "plain"),
            implementation="in place"),
    )  # fmt: skip
    path = tmp_path / "network.onnx"
    write_drawing(path, "net", choices, ["y"])
    graph = onnx.load(path).graph
    kinds = [node.op_type for node in graph.node]
    assert kinds == ["conv2d_direct", "change_of_layout", "in_place"]
    assert {node.domain for node in graph.node} == {DOMAIN}
    copy, joined = graph.node[1], graph.node[2]
    assert list(copy.input) == ["x"] and joined.input[1] == copy.output[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in graph.node[0].attribute}
    assert attributes["microseconds"] == 12.5 and attributes["measured"] == b"yes"
    assert [value.name for value in graph.input] == ["x"]
    assert [value.name for value in graph.output] == ["y"]

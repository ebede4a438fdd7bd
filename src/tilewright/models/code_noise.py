"""The noise that codes of eight bits make in the outputs of a network, cause by cause.

    x → Conv      before
    x → QuantizeLinear → DequantizeLinear → Where(switch, ·, x) → Conv      after

A copy of the network in single precision has a switch for each tensor that its form on codes
rounds, and takes constants as inputs. With one switch on, or the constants of one node as their
codes have them, what changes in the outputs is that cause's noise. It runs where
`tilewright.models.clean` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.core.noise import Powers, RoundingNoise
from tilewright.graph.network import Array
from tilewright.models.onnx_file import load_saved, save_onnx

_SILENT = 4
ROUNDING = "WeightBiasQuantization"
"""ONNX Runtime's pass that rounds weights and biases in single precision between codes."""


def outputs_of(source: str, inputs: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    """The outputs of the model at `source`, whose constants stay what they are, for each of some
    inputs by name."""
    session = _session(source)
    return [session.run(None, dict(each)) for each in inputs]


def code_noise(source: str, codes: str, inputs: Sequence[Mapping[str, Array]]) -> RoundingNoise:
    """The noise of each tensor that the model at `codes` has on codes, by the name that it has in
    the model at `source`, and of the constants of each node, by its name."""
    single, rounded = load_saved(Path(source)), load_saved(Path(codes))
    switched = _Switched(single.graph, rounded.graph)
    switched.build()
    path = Path(source).with_name("switched.onnx")
    save_onnx(single, path)
    session, floats = _session(str(path)), [*switched.floating]
    off = dict.fromkeys(switched.tensors.values(), np.asarray(False)) | switched.single

    def outputs_of(given: Mapping[str, Array]) -> Any:
        """Those in floating-point numbers; asked for none, ONNX Runtime computes all."""
        return session.run(floats, given) if floats else []

    usual = [outputs_of({**each, **off}) for each in inputs]

    def power(changed: Mapping[str, Array]) -> Powers:
        on = {**off, **changed}
        found = [outputs_of({**each, **on}) for each in inputs]
        return tuple(
            float(sum(np.square(a - b, dtype=np.float64).sum() for a, b in zip(*runs, strict=True)))
            for runs in zip(zip(*usual, strict=True), zip(*found, strict=True), strict=True)
        )

    outputs = [*zip(*usual, strict=True)]
    return RoundingNoise(
        outputs=tuple(floats),
        signals=tuple(
            float(sum(np.square(each, dtype=np.float64).sum() for each in one)) for one in outputs
        ),
        largest=tuple(float(max(np.abs(each).max() for each in one)) for one in outputs),
        elements=tuple(sum(each.size for each in one) for one in outputs),
        tensors={
            name: power({switch: np.asarray(True)}) for name, switch in switched.tensors.items()
        },
        calls={name: power(rounded) for name, rounded in switched.nodes.items()},
    )


class _Switched:
    """A graph, to be given switches, and the same on codes. `tensors` has the switch of a tensor,
    `nodes` what each node's constants stand for on codes, by the names of inputs; `single` has all
    constants as they are."""

    def __init__(self, graph: onnx.GraphProto, codes: onnx.GraphProto) -> None:
        self.graph, self.codes = graph, codes
        self.tensors: dict[str, str] = {}
        self.nodes: dict[str, dict[str, Array]] = {}
        self.single: dict[str, Array] = {}
        self.constants = {each.name: each for each in graph.initializer}
        self.coded = {each.name: each for each in codes.initializer}
        self.makers = {name: node for node in codes.node for name in node.output}
        float_type = onnx.TensorProto.FLOAT
        kinds = {each.name: each.type.tensor_type.elem_type for each in graph.output}
        self.floating = [name for name, kind in kinds.items() if kind == float_type]

    def build(self) -> None:
        """Give the graph its switches."""
        on_codes = {node.name: node for node in self.codes.node}
        made: list[onnx.NodeProto] = []
        renamed = {name: f"{name}/single" for name in self.floating if self._read(name)}
        for node in self.graph.node:
            also = on_codes.get(node.name)
            for place, name in enumerate(node.input):
                read = None if also is None or not name else self._read(also.input[place])
                if read is not None and name in self.constants:
                    node.input[place] = self._constant(node.name, name, read)
                elif read is not None:
                    node.input[place] = self._tensor(renamed.get(name, name), name, read, made)
                elif name in renamed:
                    node.input[place] = renamed[name]
            for place, name in enumerate(node.output):
                node.output[place] = renamed.get(name, name)
            made.append(node)
        for name, single in renamed.items():
            switched = self._tensor(single, name, self._read(name), made)
            made.append(helper.make_node("Identity", [switched], [name]))
        del self.graph.node[:]
        self.graph.node.extend(made)
        for switch in self.tensors.values():
            kind = helper.make_tensor_value_info(switch, onnx.TensorProto.BOOL, ())
            self.graph.input.append(kind)
        for name, array in self.single.items():
            kind = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
            self.graph.input.append(kind)

    def _read(self, tensor: str) -> onnx.NodeProto | None:
        """What dequantizes a tensor of the graph on codes."""
        maker = self.makers.get(tensor)
        return maker if maker is not None and maker.op_type == "DequantizeLinear" else None

    def _constant(self, node: str, name: str, read: onnx.NodeProto) -> str:
        """A constant of a node as an input, which is told what its codes stand for."""
        codes, scale = (numpy_helper.to_array(self.coded[each]) for each in read.input[:2])
        zero = numpy_helper.to_array(self.coded[read.input[2]])
        axis = next((each.i for each in read.attribute if each.name == "axis"), 1)
        shape = [-1 if place == axis % codes.ndim else 1 for place in range(codes.ndim)]
        if scale.size > 1:
            scale, zero = np.reshape(scale, shape), np.reshape(zero, shape)
        values = (codes.astype(np.float32) - np.asarray(zero, np.float32)) * scale
        given = f"{name}/of {node}"
        self.single[given] = numpy_helper.to_array(self.constants[name])
        rounded = values.astype(np.float32).reshape(self.single[given].shape)
        self.nodes.setdefault(node, {})[given] = rounded
        return given

    def _tensor(
        self, single: str, name: str, read: onnx.NodeProto | None, made: list[onnx.NodeProto]
    ) -> str:
        """A tensor or what its codes stand for, by its switch."""
        assert read is not None
        switched = f"{name}/switched"
        if name in self.tensors:
            return switched
        switch = self.tensors[name] = f"{name}/on codes"
        parameters = list(self._copied(name, read.input[1:3]))
        codes, rounded = f"{name}/codes", f"{name}/rounded"
        made.append(helper.make_node("QuantizeLinear", [single, *parameters], [codes]))
        made.append(helper.make_node("DequantizeLinear", [codes, *parameters], [rounded]))
        made.append(helper.make_node("Where", [switch, rounded, single], [switched]))
        return switched

    def _copied(self, name: str, parameters: Sequence[str]) -> Iterator[str]:
        """Scale and zero point among the constants of the graph."""
        for place, each in enumerate(parameters):
            own = f"{name}/parameter {place}"
            array = numpy_helper.to_array(self.coded[each])
            self.graph.initializer.append(numpy_helper.from_array(array, own))
            yield own


def _session(path: str) -> Any:
    ort: Any = import_module("onnxruntime")
    options: Any = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=[ROUNDING]
    )

"""Small ONNX models, and the comparison of our import of them with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from hypothesis import HealthCheck, settings
from onnx import helper, numpy_helper

from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Graph
from tilewright.models import ModelOptions
from tilewright.models.contained import infer_types
from tilewright.models.loading import load_model
from tilewright.models.onnx_import.translate import translate

few = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
"""For properties whose every case asks two engines."""
Arrays = Mapping[str, np.ndarray[Any, Any]]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    *,
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
    constants: Arrays | None = None,
) -> onnx.ModelProto:
    """A model; `inputs` are arrays, or shapes of float tensors, where text and None are dynamic."""
    values = []
    for name, given in inputs.items():
        element = onnx.TensorProto.FLOAT
        shape = given
        if isinstance(given, np.ndarray):
            element, shape = helper.np_dtype_to_tensor_dtype(given.dtype), given.shape
        values.append(helper.make_tensor_value_info(name, element, shape))
    graph = helper.make_graph(
        list(nodes),
        "test",
        values,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model)
    del inferred.graph.value_info[:]
    return inferred


def session_of(model: onnx.ModelProto | Path) -> Any:
    """ONNX Runtime without optimisation."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def reference(model: onnx.ModelProto | Path, feed: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """All outputs by ONNX Runtime."""
    session = session_of(model)
    known = {value.name for value in session.get_inputs()}
    results = session.run(None, {name: a for name, a in feed.items() if name in known})
    return dict(zip([value.name for value in session.get_outputs()], results, strict=True))


def unfolded(model: onnx.ModelProto, tmp: Path = Path()) -> Graph:
    """Our graph without ONNX Runtime's cleaning."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    return translate(infer_types(copy, tmp, trusted=True), "test")


def folded(model: onnx.ModelProto, options: ModelOptions | None = None) -> Graph:
    """Our graph as users get it, without islands unless the options say so."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    return load_model(copy, "test", options or ModelOptions(islands="refuse")).graph


def check(model: onnx.ModelProto, feed: Arrays, *, tolerance: float = 2e-6) -> Graph:
    """Both imports give what ONNX Runtime gives, without opaque nodes."""
    wanted = reference(model, feed)
    for graph in (unfolded(model), folded(model)):
        assert not [node.name for node in graph.nodes if node.operator == "opaque"]
        assert set(graph.inputs) == {value.name for value in model.graph.input}
        assert graph.outputs == tuple(wanted)
        results = run_graph(graph, {name: feed[name] for name in graph.inputs})
        for name, array in wanted.items():
            assert results[name].shape == array.shape == graph.types[name].shape
            assert results[name].dtype == array.dtype
            scale = max(1.0, float(np.abs(array[np.isfinite(array)]).max(initial=0)))
            np.testing.assert_allclose(results[name], array, rtol=1e-5, atol=tolerance * scale)
    return folded(model)


def check_node(
    operator: str,
    inputs: Mapping[str, Any],
    *,
    opset: int = 17,
    constants: Arrays | None = None,
    outputs: Sequence[str] = ("y",),
    order: Sequence[str] | None = None,
    **named: Any,
) -> Graph:
    """`check` of one node named `node`; inputs are `inputs`, then `constants`, or as `order`."""
    names = order if order is not None else [*inputs, *(constants or {})]
    node = helper.make_node(operator, list(names), list(outputs), name="node", **named)
    used = [name for name in outputs if name]
    model = model_of([node], inputs, opset=opset, outputs=used, constants=constants)
    return check(model, inputs)


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Seeded N(0,1)."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def int64(*values: int) -> np.ndarray[Any, Any]:
    """A vector of indices."""
    return np.asarray(values, np.int64)

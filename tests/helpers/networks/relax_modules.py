"""What modules of Relax compute: by TVM's virtual machine, and by ONNX Runtime as our export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import tvm
from tvm import relax

from tilewright.compiler.relax_export.conversion import to_onnx


def function_of(
    parameters: Sequence[relax.Var],
    result: Callable[[relax.BlockBuilder], Any],
    *,
    name: str = "main",
    attrs: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """A module with one function, whose result is built inside it."""
    builder = relax.BlockBuilder()
    with builder.function(name, [*parameters], attrs=attrs and dict(attrs)):
        with builder.dataflow():
            output = builder.emit_output(result(builder))
        builder.emit_func_output(output)
    return builder.get()


def by_tvm(module: tvm.IRModule, *inputs: np.ndarray) -> list[Any]:
    """The results of `main` by TVM, lists for tuples."""
    passes = [relax.transform.DecomposeOpsForInference(), relax.transform.LegalizeOps()]
    lowered = tvm.ir.transform.Sequential(passes)(module)
    machine = relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [found.numpy()] if hasattr(found, "numpy") else [_arrays(each) for each in found]


def _arrays(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [_arrays(each) for each in value]


def by_onnx_runtime(module: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """The results of our export, in their order."""
    model, _ = to_onnx(module, "module", 0)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_inputs()]
    return [np.asarray(each) for each in session.run(None, dict(zip(names, inputs, strict=True)))]

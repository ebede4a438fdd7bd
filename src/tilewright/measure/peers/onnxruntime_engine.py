"""The child process in which ONNX Runtime runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.measure.peers.engine import Arrays, Engine

onnxruntime: Any = import_module("onnxruntime")


class OnnxRuntime(Engine):
    """One session. Its arenas and spinning are ONNX Runtime's defaults."""

    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Load the model; ONNX Runtime's CPU provider keeps the model's own precision, fp32."""
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model_path, options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]
        kinds = {argument.type for argument in self._session.get_inputs()}
        return "fp16" if "tensor(float16)" in kinds and "tensor(float)" not in kinds else "fp32"

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        binding = self._session.io_binding()
        for name, value in inputs.items():
            binding.bind_cpu_input(name, np.asarray(value, order="C"))
        for name in self._names:
            binding.bind_output(name)
        self._binding = binding
        return lambda: self._session.run_with_iobinding(binding)

    def outputs(self, result: Any) -> Arrays:
        return dict(zip(self._names, self._binding.copy_outputs_to_cpu(), strict=True))


if __name__ == "__main__":
    OnnxRuntime().serve()

"""The child process in which ONNX Runtime runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tilewright.core.child import serve, wait_until_asleep
from tilewright.measure.peers.timing import time_calls

onnxruntime: Any = import_module("onnxruntime")
Arrays = dict[str, np.ndarray[Any, Any]]


class Engine:
    """One session. Its arenas and spinning are ONNX Runtime's defaults."""

    def __init__(self) -> None:
        self._session: Any = None

    def start(self, model_path: str, threads: int, _precision: str) -> str:
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
        kinds = {argument.type for argument in self._session.get_inputs()}
        wait_until_asleep()
        return "fp16" if "tensor(float16)" in kinds and "tensor(float)" not in kinds else "fp32"

    def run(self, inputs: Arrays) -> Arrays:
        """One call; outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        outputs = dict(zip(names, self._session.run(names, inputs), strict=True))
        wait_until_asleep()
        return outputs

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds per call with the inputs bound ahead, so that no conversion is timed."""
        binding = self._session.io_binding()
        for name, value in inputs.items():
            binding.bind_cpu_input(name, np.asarray(value, order="C"))
        for output in self._session.get_outputs():
            binding.bind_output(output.name)
        return time_calls(lambda: self._session.run_with_iobinding(binding), repeats, warmup)


if __name__ == "__main__":
    engine = Engine()
    serve({"start": engine.start, "run": engine.run, "time": engine.time})

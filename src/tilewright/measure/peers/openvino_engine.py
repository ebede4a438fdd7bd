"""The child process in which OpenVINO runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tilewright.core.child import serve, wait_until_asleep
from tilewright.measure.peers.timing import time_calls

openvino: Any = import_module("openvino")
Arrays = dict[str, np.ndarray[Any, Any]]
_PRECISIONS = {
    "f32": "fp32",
    "float32": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "f16": "fp16",
    "float16": "fp16",
}


class Engine:
    """One compiled model and one request."""

    def __init__(self) -> None:
        self._compiled: Any = None
        self._request: Any = None

    def start(self, model_path: str, threads: int, precision: str) -> str:
        """Compile the model for latency; returns the precision the plug-in says it computes in.

        By default that is bf16 on processors with AMX or AVX512_BF16.
        """
        settings: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
        }
        if precision == "fp32":
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        self._compiled = openvino.Core().compile_model(model_path, "CPU", settings)
        self._request = self._compiled.create_infer_request()
        used = self._compiled.get_property("INFERENCE_PRECISION_HINT")
        wait_until_asleep()
        name = used if isinstance(used, str) else used.get_type_name()
        return _PRECISIONS.get(name, name)

    def run(self, inputs: Arrays) -> Arrays:
        """One call; outputs by each of the names the model gives them."""
        self._request.infer(inputs)
        outputs = {
            name: np.array(self._request.get_output_tensor(index).data)
            for index, output in enumerate(self._compiled.outputs)
            for name in output.names
        }
        wait_until_asleep()
        return outputs

    def time(self, inputs: Arrays, repeats: int, warmup: int) -> list[float]:
        """Seconds per call with the inputs set ahead."""
        for name, value in inputs.items():
            array = np.asarray(value, order="C")
            self._request.set_tensor(name, openvino.Tensor(array, shared_memory=False))
        return time_calls(self._request.infer, repeats, warmup)


if __name__ == "__main__":
    engine = Engine()
    serve({"start": engine.start, "run": engine.run, "time": engine.time})

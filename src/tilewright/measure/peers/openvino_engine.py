"""The child process in which OpenVINO runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.measure.peers.engine import Arrays, Engine

openvino: Any = import_module("openvino")
_PRECISIONS = {
    "f32": "fp32",
    "float32": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "f16": "fp16",
    "float16": "fp16",
}
_HINTS = {"fp32": "f32", "fp16": "f16"}


class OpenVino(Engine):
    """One compiled model and one request."""

    def load(self, model_path: str, threads: int, precision: str) -> str:
        """Compile the model for latency; returns the precision the plug-in says it computes in.

        By default that is bf16 on processors with AMX or AVX512_BF16.
        """
        settings: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
        }
        if precision in _HINTS:
            settings["INFERENCE_PRECISION_HINT"] = _HINTS[precision]
        self._compiled = openvino.Core().compile_model(model_path, "CPU", settings)
        self._request = self._compiled.create_infer_request()
        used = self._compiled.get_property("INFERENCE_PRECISION_HINT")
        name = used if isinstance(used, str) else used.get_type_name()
        return _PRECISIONS.get(name, name)

    def bind(self, inputs: Arrays) -> Callable[[], Any]:
        for name, value in inputs.items():
            array = np.asarray(value, order="C")
            self._request.set_tensor(name, openvino.Tensor(array, shared_memory=False))
        return self._request.infer

    def outputs(self, result: Any) -> Arrays:
        """By each of the names that the model gives them."""
        return {
            name: np.array(self._request.get_output_tensor(index).data)
            for index, output in enumerate(self._compiled.outputs)
            for name in output.names
        }


if __name__ == "__main__":
    OpenVino().serve()

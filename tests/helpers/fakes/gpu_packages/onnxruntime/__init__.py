"""An ONNX Runtime that is made up, with a CUDA provider: ONNX's reference computes.

FAKE_ONNXRUNTIME says what is wrong: `no provider`, `no libraries`, `no graphs`, `no layouts`.
"""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from onnxruntime.capi.onnxruntime_pybind11_state import Fail

_FAULT = os.environ.get("FAKE_ONNXRUNTIME", "")
_CUDA, _CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
__version__ = "9.9"
GraphOptimizationLevel = SimpleNamespace(ORT_ENABLE_ALL=99)
SessionOptions = SimpleNamespace


def get_available_providers():
    return [_CPU] if _FAULT == "no provider" else [_CUDA, _CPU]


class RunOptions:
    def __init__(self):
        self.entries = {}

    def add_run_config_entry(self, name, value):
        self.entries[name] = value


class _Binding:
    def __init__(self):
        self.inputs, self.outputs = {}, {}

    def bind_input(self, name, device, number, dtype, shape, address):
        assert (device, number) == ("cuda", 0)
        self.inputs[name] = _array(dtype, shape, address)

    def bind_output(self, name, device, number, dtype, shape, address):
        assert (device, number) == ("cuda", 0)
        self.outputs[name] = _array(dtype, shape, address)


def _array(dtype, shape, address):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


class InferenceSession:
    def __init__(self, path, options, *, providers, enable_fallback):
        assert options.intra_op_num_threads == 1 and not enable_fallback
        (_, self.settings), _ = providers
        assert self.settings["user_compute_stream"].isdigit()
        if self.settings["enable_cuda_graph"] == "1" and _FAULT in ("no graphs", "no layouts"):
            raise Fail("nodes are not on the CUDA provider")
        if self.settings["prefer_nhwc"] == "1" and _FAULT == "no layouts":
            raise Fail("channels last is not built in")
        self._model = ReferenceEvaluator(onnx.load(path))

    def get_providers(self):
        return [_CPU] if _FAULT == "no libraries" else [_CUDA, _CPU]

    def io_binding(self):
        return _Binding()

    def run_with_iobinding(self, binding, options):
        assert options.entries == {"disable_synchronize_execution_providers": "1"}
        found = self._model.run(list(binding.outputs), binding.inputs)
        for array, value in zip(binding.outputs.values(), found, strict=True):
            allowed = self.settings["use_tf32"] == "1"
            array[...] = value.astype(np.float16) if allowed else value

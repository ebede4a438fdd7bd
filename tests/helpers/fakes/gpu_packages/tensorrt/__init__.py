"""A TensorRT that is made up: ONNX's reference computes. FAKE_TENSORRT is `refuses`
or `no context`."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace

import numpy as np
import onnx
from cuda.bindings.driver import asked
from onnx.reference import ReferenceEvaluator

_FAULT = os.environ.get("FAKE_TENSORRT", "")
BuilderFlag = SimpleNamespace(TF32="tf32")


class Logger:
    ERROR = 1

    def __init__(self, severity):
        assert severity == self.ERROR


class _Config:
    def __init__(self):
        self.flags = {BuilderFlag.TF32}

    def clear_flag(self, flag):
        self.flags.remove(flag)


class Builder:
    def __init__(self, _logger):
        pass

    def create_network(self, flags):
        assert flags == 0
        return SimpleNamespace(path="")

    create_builder_config = staticmethod(_Config)

    def build_serialized_network(self, network, config):
        return network.path, frozenset(config.flags)


class OnnxParser:
    num_errors = 1

    def __init__(self, network, _logger):
        self._network = network

    def parse_from_file(self, path):
        self._network.path = path
        return _FAULT != "refuses"

    def get_error(self, number):
        return f"error {number}: no importer for Frobnicate"


class Runtime:
    def __init__(self, _logger):
        pass

    def deserialize_cuda_engine(self, plan):
        return SimpleNamespace(
            create_execution_context=lambda: None if _FAULT == "no context" else _Context(*plan)
        )


class _Context:
    def __init__(self, path, flags):
        model = onnx.load(path)
        self._tf32 = BuilderFlag.TF32 in flags
        self._kinds = {
            it.name: [dim.dim_value for dim in it.type.tensor_type.shape.dim]
            for it in (*model.graph.input, *model.graph.output)
        }
        self._outputs = [it.name for it in model.graph.output]
        self._model = ReferenceEvaluator(model)
        self._arrays = {}

    def set_tensor_address(self, name, address):
        shape = self._kinds[name]
        memory = (ctypes.c_float * int(np.prod(shape))).from_address(address)
        self._arrays[name] = np.frombuffer(memory, np.float32).reshape(shape)

    def execute_async_v3(self, stream):
        assert isinstance(stream, int)
        asked(self._execute)
        return True

    def _execute(self):
        given = {n: array for n, array in self._arrays.items() if n not in self._outputs}
        for name, value in zip(self._outputs, self._model.run(self._outputs, given), strict=True):
            self._arrays[name][...] = value.astype(np.float16) if self._tf32 else value

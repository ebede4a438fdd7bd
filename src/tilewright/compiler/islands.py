"""Islands at work: a compiled network calls a function of Python's, which runs ONNX Runtime.

    tilewright.island(model, "3", operands..., result)     static: writes the result where it lies
    tilewright.island(model, "3", operands...) -> result   of a shape that nobody knew before

A model may have several outputs, and the network calls it once for each of them: the first call of
a run computes all, the others are given what was kept. Operands and static results are not copied.
Sessions belong to the thread that calls, as TVM's pool of threads does.
"""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import tvm
import tvm_ffi

from tilewright.core.errors import last_line
from tilewright.kernels.island import CALLED

_MOST_SESSIONS = 1024


@tvm_ffi.register_error("IslandError")
class IslandError(RuntimeError):
    """ONNX Runtime fails at what it was given."""


_own = threading.local()
"""Of the calling thread: `size` are its threads and CPUs, `sessions` what it has opened."""


def use_threads(threads: int, cpus: Sequence[int]) -> None:
    """How many threads, on which CPUs, islands use that the calling thread opens from now on."""
    _own.size = (threads, tuple(cpus[:threads]))
    _own.sessions = {}


class Session:
    """An island's model, open in ONNX Runtime with the calling thread's number of threads."""

    def __init__(self, model: str) -> None:
        content = b64decode(model)
        engine: Any = import_module("onnxruntime")
        self._value = engine.OrtValue.ortvalue_from_numpy
        self._session: Any = engine.InferenceSession(
            content, _options(engine), providers=["CPUExecutionProvider"]
        )
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]
        nodes = onnx.load_model_from_string(content).graph.node
        self._title = ", ".join(repr(node.name or node.op_type) for node in nodes[:3])
        self._kept: dict[int, np.ndarray] = {}

    def call(
        self, index: int, operands: Sequence[np.ndarray], result: np.ndarray | None
    ) -> np.ndarray:
        """Output `index` for these operands, written to `result` where there is one.

        Computes all outputs, unless the call for another output has done it before. Raises
        IslandError where ONNX Runtime fails.
        """
        found = self._kept.pop(index, None)
        if found is not None:
            if result is not None:
                self._require_alike(found, result)
                np.copyto(result, found)
            return found if result is None else result
        binding = self._session.io_binding()
        for name, operand in zip(self._inputs, operands, strict=True):
            binding.bind_ortvalue_input(name, self._value(operand))
        for number, name in enumerate(self._outputs):
            if number == index and result is not None:
                binding.bind_ortvalue_output(name, self._value(result))
            else:
                binding.bind_output(name)
        try:
            self._session.run_with_iobinding(binding)
        except RuntimeError as error:  # what a run with bound operands raises
            self._kept = {}
            raise IslandError(f"the island of {self._title} fails: {last_line(error)}") from error
        others = {n for n in range(len(self._outputs)) if n != index or result is None}
        values = dict(enumerate(binding.get_outputs()))
        self._kept = {number: values[number].numpy() for number in others}
        return self._kept.pop(index) if result is None else result

    def _require_alike(self, found: np.ndarray, result: np.ndarray) -> None:
        """Raise IslandError for a result that is not what the model says."""
        if (found.shape, found.dtype) != (result.shape, result.dtype):
            kind = f"{found.dtype}{[*found.shape]}"
            raise IslandError(f"the island of {self._title} gives {kind} for {[*result.shape]}")

    def abandon(self) -> None:
        """Forget what was kept of a run that did not end."""
        self._kept = {}


def _options(engine: Any) -> Any:
    """As many threads as the network's kernels have, on the same CPUs; they sleep where they have
    nothing to do, for TVM's own are on these CPUs, too."""
    threads, cpus = getattr(_own, "size", (1, ()))
    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads > 1 and len(cpus) == threads:
        others = ";".join(str(cpu + 1) for cpu in cpus[1:])
        options.add_session_config_entry("session.intra_op_thread_affinities", others)
    return options


def session(model: str) -> Session:
    """The calling thread's session of a model, which is opened when it is first asked for."""
    known: dict[str, Session] = _own.__dict__.setdefault("sessions", {})
    if model not in known:
        if len(known) >= _MOST_SESSIONS:
            known.pop(next(iter(known)))
        known[model] = Session(model)
    return known[model]


def forget() -> None:
    """What was kept of a run that did not end."""
    for each in _own.__dict__.get("sessions", {}).values():
        each.abandon()


def array_of(tensor: Any) -> np.ndarray:
    """A tensor's memory, not copied."""
    return np.from_dlpack(tensor)


@tvm.register_global_func(CALLED)
def _call(model: Any, index: Any, *tensors: Any) -> Any:
    """What networks call: operands, then a static result's memory where `index` does not end with
    a question mark."""
    text = str(index)
    unknown = text.endswith("?")
    arrays = [array_of(tensor) for tensor in tensors]
    operands, result = (arrays, None) if unknown else (arrays[:-1], arrays[-1])
    found = session(str(model)).call(int(text.rstrip("?")), operands, result)
    return tvm_ffi.from_dlpack(np.ascontiguousarray(found)) if unknown else None

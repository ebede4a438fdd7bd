"""Islands at work: a compiled network calls a function of Python's, which runs ONNX Runtime.

    tilewright.island(model, "3", operands..., result)     static: writes the result where it lies
    tilewright.island(model, "3?", operands...) -> result  of a shape that nobody knew before
    tilewright.island(model, "0:1,2", operands..., result) of which the second and third are weights

Tasks that ONNX Runtime computes because it is faster go the same way; their weights are bound when
a session is opened. The model of an island may have several outputs, and the network calls it once
for each of them: the first call of a run computes all, the others are given what was kept. Operands
and static results are not copied. Sessions belong to the thread that calls, as TVM's pool of
threads does, and end with their network.
"""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import onnx
import tvm
import tvm_ffi
from onnx import numpy_helper

from tilewright.compiler.onnx_models import TASK
from tilewright.core.errors import last_line
from tilewright.graph.workload import Workload
from tilewright.kernels.island import CALLED

_MOST_SESSIONS = 1024


@tvm_ffi.register_error("IslandError")
class IslandError(RuntimeError):
    """ONNX Runtime fails at what it was given."""


_own = threading.local()
"""Of the calling thread: `size` are its threads and CPUs, `sessions` what it has opened for each
network, which live as long as that, `current` refers to those of the network that runs, and `alone`
are those of calls outside of any."""


class Known(dict[tuple[object, ...], "Session"]):
    """What a network has opened; unlike a plain dictionary, it can be referred to weakly."""


def use_threads(threads: int, cpus: Sequence[int]) -> None:
    """How many threads, on which CPUs, islands use that the calling thread opens from now on."""
    _own.size = (threads, tuple(cpus[:threads]))
    _own.sessions = WeakKeyDictionary()
    _own.current = _nothing
    _own.alone = Known()


def enter(network: object) -> None:
    """From now on the calling thread runs this network: a run begins, and nothing was kept."""
    _own.current = ref(_of(network))
    forget()


def close(network: object) -> None:
    """End the sessions of a network whose weights are not where they were."""
    _of(network).clear()


def _of(network: object) -> Known:
    sessions = _own.__dict__.setdefault("sessions", WeakKeyDictionary())
    return sessions.setdefault(network, Known())


def _nothing() -> None:
    """In the place of what a network has opened where none runs."""


class Session:
    """A model, open in ONNX Runtime with the calling thread's number of threads. Some of its inputs
    may be `constants`, by place: they are bound for good, so that ONNX Runtime may pack them."""

    def __init__(self, model: str, constants: Mapping[int, np.ndarray] = MappingProxyType({})):
        proto = onnx.load_model_from_string(b64decode(model))
        bound = {proto.graph.input[place].name: array for place, array in constants.items()}
        left = [value for value in proto.graph.input if value.name not in bound]
        for name, array in bound.items():
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
        del proto.graph.input[:]
        proto.graph.input.extend(left)
        engine: Any = import_module("onnxruntime")
        self._value = engine.OrtValue.ortvalue_from_numpy
        self._session: Any = engine.InferenceSession(
            proto.SerializeToString(), _options(engine), providers=["CPUExecutionProvider"]
        )
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]
        names = ", ".join(repr(node.name or node.op_type) for node in proto.graph.node[:3])
        self._title = f"{'task' if proto.graph.name == TASK else 'island'} of {names}"
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
            raise IslandError(f"the {self._title} fails: {last_line(error)}") from error
        others = {n for n in range(len(self._outputs)) if n != index or result is None}
        values = dict(enumerate(binding.get_outputs()))
        self._kept = {number: values[number].numpy() for number in others}
        return self._kept.pop(index) if result is None else result

    def _require_alike(self, found: np.ndarray, result: np.ndarray) -> None:
        """Raise IslandError for a result that is not what the model says."""
        if (found.shape, found.dtype) != (result.shape, result.dtype):
            kind = f"{found.dtype}{[*found.shape]}"
            raise IslandError(f"the {self._title} gives {kind} for {[*result.shape]}")

    def abandon(self) -> None:
        """Forget what was kept of a run that did not end."""
        self._kept = {}


@cache
def _share_memory() -> None:
    """Have all sessions of this process take what they need for a run from one place: they run one
    after the other, and a network may have a hundred."""
    engine: Any = import_module("onnxruntime")
    arena = engine.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = engine.OrtMemoryInfo("Cpu", arena, 0, engine.OrtMemType.DEFAULT)
    engine.create_and_register_allocator(memory, engine.OrtArenaCfg({}))


def _options(engine: Any) -> Any:
    """As many threads as the network's kernels have, on the same CPUs; they sleep where they have
    nothing to do, for TVM's own are on these CPUs, too."""
    _share_memory()
    threads, cpus = getattr(_own, "size", (1, ()))
    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.use_env_allocators", "1")
    if threads > 1 and len(cpus) == threads:
        others = ";".join(str(cpu + 1) for cpu in cpus[1:])
        options.add_session_config_entry("session.intra_op_thread_affinities", others)
    return options


def session(model: str, constants: Mapping[int, np.ndarray], known: Known) -> Session:
    """The session of a model with these constants, wherever they lie, which is opened when it is
    first asked for."""
    key = (model, *(array.__array_interface__["data"][0] for array in constants.values()))
    if key not in known:
        if len(known) >= _MOST_SESSIONS:
            known.pop(next(iter(known)))
        known[key] = Session(model, constants)
    return known[key]


def forget() -> None:
    """What was kept of a run that did not end."""
    for each in _current().values():
        each.abandon()


def _current() -> Known:
    found = _own.__dict__.get("current", _nothing)()
    return _own.__dict__.setdefault("alone", Known()) if found is None else found


def array_of(tensor: Any) -> np.ndarray:
    """A tensor's memory, not copied."""
    return np.from_dlpack(tensor)


def _opened(
    model: object, index: object, operands: Sequence[np.ndarray]
) -> tuple[Session, list[np.ndarray]]:
    """The session that a call goes to, and what changes from call to call of its operands."""
    _, _, places = str(index).partition(":")
    bound = {place: operands[place] for place in map(int, places.split(","))} if places else {}
    changing = [each for place, each in enumerate(operands) if place not in bound]
    return session(str(model), bound, _current()), changing


def make_ready(model: str, index: str, *tensors: Any) -> None:
    """Open the session that a call with these operands and this result would go to."""
    _opened(model, index, [array_of(tensor) for tensor in tensors[:-1]])


def in_order(workload: Workload, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The operands of an island, which may read one argument twice."""
    return [arrays[value] for value in workload.steps[0].inputs]


def computing(session: Session, workload: Workload) -> Callable[..., None]:
    """A call that computes all outputs; the first goes to the last tensor where its shape is
    known."""

    def call(*tensors: Any) -> None:
        *operands, result = map(array_of, tensors)
        session.abandon()
        given = in_order(workload, operands)
        session.call(0, given, result if workload.result.is_static else None)

    return call


def copying(session: Session, workload: Workload) -> Callable[..., None]:
    """A call that copies the workload's output, which is computed once."""
    kept: list[np.ndarray] = []

    def call(*tensors: Any) -> None:
        *operands, result = map(array_of, tensors)
        if not kept:
            index = workload.steps[0].integer("output_index")
            kept.append(session.call(index, in_order(workload, operands), None))
        if result.shape == kept[0].shape:
            np.copyto(result, kept[0])

    return call


@tvm.register_global_func(CALLED)
def _call(model: Any, index: Any, *tensors: Any) -> Any:
    """What networks call: operands, then a static result's memory where `index` does not end with
    a question mark. Behind a colon are the places of operands that are the same in each call."""
    output = str(index).partition(":")[0]
    unknown = output.endswith("?")
    arrays = [array_of(tensor) for tensor in tensors]
    operands, result = (arrays, None) if unknown else (arrays[:-1], arrays[-1])
    opened, changing = _opened(model, index, operands)
    found = opened.call(int(output.rstrip("?")), changing, result)
    return tvm_ffi.from_dlpack(np.ascontiguousarray(found)) if unknown else None

"""A torch that is made up, with a GPU: numpy computes, tensors know where they are, and a clock
counts what calls would take. Only what a network of convolutions and products needs is here.

FAKE_TORCH says what is wrong: `no cuda`, `no gpu`, `old gpu`, `no graphs`, `no memory`, `hangs`.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from weakref import ref

import numpy as np

FAULT = os.environ.get("FAKE_TORCH", "")
__version__ = "2.99"
channels_last = "channels last"
float32, int64 = np.float32, np.int64
_CALL_S, _LAUNCH_S = 2e-6, 1e-6
_now = SimpleNamespace(clock_s=0.0, recorded=None)


class OutOfMemoryError(RuntimeError):
    """As torch's, a RuntimeError."""


class Tensor:
    """An array on a device. One that is `captured` lies in a graph's own memory."""

    def __init__(self, array, device="cpu", layout="channels first"):
        self.array, self.device, self.layout = array, device, layout
        self.captured = _now.recorded is not None

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return SimpleNamespace(is_floating_point=self.array.dtype.kind == "f")

    def dim(self):
        return self.array.ndim

    def to(self, device=None, *, memory_format=None):
        if FAULT == "no memory" and device == "cuda":
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return Tensor(self.array.copy(), device or self.device, memory_format or self.layout)

    def cpu(self):
        return self.to("cpu")

    def numpy(self):
        if self.device != "cpu":
            raise TypeError("can't convert cuda device type tensor to numpy")
        return self.array

    def copy_(self, other):
        self.array[...] = other.array

    def reshape(self, *shape):
        flat = shape[0] if isinstance(shape[0], tuple) else shape
        return _computed(lambda x: x.reshape(flat), self)

    def t(self):
        return _computed(np.transpose, self)


def _computed(function, *tensors):
    """On one device, and again whenever a graph is replayed that it is part of."""
    devices = {tensor.device for tensor in tensors if tensor is not None}
    if len(devices) != 1:
        raise RuntimeError("Expected all tensors to be on the same device")
    given = [None if tensor is None else tensor.array for tensor in tensors]
    made = Tensor(np.array(function(*given)), devices.pop(), tensors[0].layout)
    if _now.recorded is not None:
        if FAULT == "no graphs":
            raise RuntimeError("operation not permitted when stream is capturing")
        read = [tensor and (tensor.array if tensor.captured else ref(tensor)) for tensor in tensors]
        _now.recorded.append(lambda: made.array.__setitem__(..., function(*map(_left_of, read))))
    else:
        _now.clock_s += _LAUNCH_S
        _now.clock_s += _CALL_S / (2 if made.layout == channels_last else 1)
    return made


def _left_of(read):
    """An array that a graph reads: nothing sensible where others use its memory by now."""
    if not isinstance(read, ref):
        return read
    tensor = read()
    return np.float32(np.nan) if tensor is None else tensor.array


def _rounded(array):
    """To the ten bits of tf32, where cuDNN may."""
    if not backends.cudnn.allow_tf32 or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return array
    whole = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return (whole & np.uint32(0xFFFFE000)).view(np.float32)


def _conv2d(x, w, bias, strides, padding, dilation, groups):
    assert (tuple(strides), tuple(dilation), groups) == ((1, 1), (1, 1), 1)
    places = [(0, 0), (0, 0), *((p, p) for p in padding)]

    def convolved(x, w, bias):
        padded = np.pad(_rounded(x), places)
        windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
        sums = np.einsum("nchwij,ocij->nohw", windows, _rounded(w))
        return sums if bias is None else sums + bias.reshape(-1, 1, 1)

    return _computed(convolved, x, w, bias)


def _linear(x, w, bias):
    return _computed(lambda x, w, b: x @ w.T + (0 if b is None else b), x, w, bias)


def relu(x):
    return _computed(lambda x: np.maximum(x, 0), x)


def matmul(a, b):
    return _computed(np.matmul, a, b)


sum = mean = amax = amin = prod = softmax = where = None


def from_numpy(array):
    return Tensor(array)


def set_num_threads(count):
    del count


set_num_interop_threads = set_num_threads


@contextmanager
def inference_mode():
    yield


def compile(module):
    assert _config().freezing
    return module.forward


def _config():
    from torch._inductor import config

    return config


class _Module:
    def eval(self):
        return self

    def register_buffer(self, name, tensor):
        setattr(self, name, tensor)


nn = SimpleNamespace(
    Module=_Module,
    functional=SimpleNamespace(
        conv2d=_conv2d, linear=_linear, softplus=None, silu=None, gelu=None, hardswish=None
    ),
)
backends = SimpleNamespace(
    cudnn=SimpleNamespace(allow_tf32=True, benchmark=False),
    cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)),
)


class _Event:
    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at_s = _now.clock_s

    def synchronize(self):
        if FAULT == "hangs":
            time.sleep(60)

    def elapsed_time(self, other):
        return (other.at_s - self.at_s) * 1e3


class _Graph:
    def __init__(self):
        self.work = []

    def replay(self):
        _now.clock_s += _LAUNCH_S + _CALL_S * len(self.work) / 4
        for again in self.work:
            again()


@contextmanager
def _recording(graph):
    _now.recorded = graph.work
    try:
        yield
    finally:
        _now.recorded = None


@contextmanager
def _in_stream(_stream):
    yield


cuda = SimpleNamespace(
    is_available=lambda: FAULT != "no gpu",
    get_device_capability=lambda: (7, 5) if FAULT == "old gpu" else (9, 0),
    Event=_Event,
    CUDAGraph=_Graph,
    graph=_recording,
    Stream=partial(SimpleNamespace, wait_stream=lambda _other: None),
    stream=_in_stream,
    current_stream=partial(SimpleNamespace, wait_stream=lambda _other: None),
)
version = SimpleNamespace(cuda=None if FAULT == "no cuda" else "13.0")

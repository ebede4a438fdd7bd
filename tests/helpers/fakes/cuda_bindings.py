"""NVIDIA's module `cuda.bindings.driver` in miniature: its memory is this process's, and what it
was told to launch is kept in a list."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class Status(IntEnum):
    """`CUresult`, as far as tests need it."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


_COUNT = "MULTIPROCESSOR_COUNT"
FINE = Status.CUDA_SUCCESS


class CudaBindings:
    """The functions that `NvidiaDriver` calls. `fails` has the status with which a function ends
    from now on, `attributes` what a card says of itself by the ends of the attributes' names.
    Multiprocessors are given out in whole groups of `group`."""

    def __init__(self, cards: int = 1, **attributes: int) -> None:
        self.cards = cards
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 114,
            "L2_CACHE_SIZE": 50 << 20,
            "CLOCK_RATE": 1_755_000,
            "MEMORY_CLOCK_RATE": 1_593_000,
            "GLOBAL_MEMORY_BUS_WIDTH": 5120,
        } | attributes
        self.fails: dict[str, Status] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.group = 8
        self.CUdevice_attribute = _Names()
        self.CUdevResourceType = _Names()
        self.CUgreenCtxCreate_flags = _Names()
        self.CUfunction_attribute = _Names()
        self.CUstreamCaptureMode = _Names()
        self._memory: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        answer = getattr(type(self), f"_{name}", None)
        if answer is None and name not in SILENT:
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            if name in self.fails:
                return (self.fails[name], *([None] * 2 if name == "cuFuncGetParamInfo" else [None]))
            return (FINE, *(answer(self, *arguments) if answer else ()))

        return call

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (self.cards,)

    def _cuDeviceGet(self, number: int) -> tuple[int]:
        return (number,)

    def _cuDeviceGetName(self, length: int, _device: int) -> tuple[bytes]:
        return (b"NVIDIA H100 PCIe".ljust(length, b"\0"),)

    def _cuDeviceGetUuid(self, device: int) -> tuple[Any]:
        return (SimpleNamespace(bytes=bytes([device] * 16)),)

    def _cuDeviceTotalMem(self, _device: int) -> tuple[int]:
        return (80 << 30,)

    def _cuDeviceGetAttribute(self, which: str, _device: int) -> tuple[int]:
        return (self.attributes[which.removeprefix("CU_DEVICE_ATTRIBUTE_")],)

    def _cuDeviceGetDevResource(self, _device: int, _kind: str) -> tuple[Any]:
        return (SimpleNamespace(sm=SimpleNamespace(smCount=self.attributes[_COUNT])),)

    def _cuDevSmResourceSplitByCount(
        self, groups: int, every: Any, _flags: int, count: int
    ) -> tuple[list[Any], int, Any]:
        given = -(-count // self.group) * self.group
        rest = SimpleNamespace(sm=SimpleNamespace(smCount=every.sm.smCount - groups * given))
        return [SimpleNamespace(sm=SimpleNamespace(smCount=given))] * groups, groups, rest

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return 1 << 30, 80 << 30

    def _cuGetErrorString(self, status: Status) -> tuple[bytes]:
        return (status.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower().encode(),)

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        block = ctypes.create_string_buffer(size)
        self._memory[ctypes.addressof(block)] = block
        return (ctypes.addressof(block),)

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self._memory[address]
        return ()

    def _cuMemcpyHtoDAsync(self, goal: int, source: int, size: int, _stream: str) -> tuple[()]:
        ctypes.memmove(goal, source, size)
        return ()

    _cuMemcpyDtoHAsync = _cuMemcpyDtoDAsync = _cuMemcpyHtoDAsync

    def _cuMemsetD8Async(self, goal: int, byte: int, size: int, _stream: str) -> tuple[()]:
        ctypes.memset(goal, byte, size)
        return ()

    def _cuLaunchKernel(self, *arguments: Any) -> tuple[()]:
        self.launched.append(arguments)
        return ()

    def _cuFuncGetParamInfo(self, _function: str, place: int) -> tuple[int, int]:
        return 8 * place, 4

    def _cuModuleGetFunction(self, _module: str, name: bytes) -> tuple[str]:
        return (name.decode(),)

    def _cuEventElapsedTime(self, _first: str, _second: str) -> tuple[float]:
        return (2.5,)

    def _handle(self, *_arguments: Any) -> tuple[str]:
        return (f"handle {len(self.calls)}",)

    _cuDevicePrimaryCtxRetain = _handle
    _cuStreamCreate = _cuEventCreate = _cuGreenCtxStreamCreate = _handle
    _cuDevResourceGenerateDesc = _cuGreenCtxCreate = _handle
    _cuModuleLoadData = _cuGraphInstantiate = _cuStreamEndCapture = _handle


class _Names:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


SILENT = frozenset(
    {
        *("cuInit", "cuCtxSetCurrent", "cuFuncSetAttribute", "cuModuleUnload"),
        *("cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamBeginCapture"),
        *("cuEventRecord", "cuEventSynchronize"),
        *("cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy"),
    }
)
"""Functions that return a status only."""

"""NVIDIA's driver, by way of its Python package `cuda-bindings`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import UUID

from tilewright.compiler.cuda.driver import (
    Driver,
    DriverError,
    Event,
    Graph,
    Memory,
    OutOfDeviceMemory,
    StickyFault,
    Stream,
    check_fits,
)
from tilewright.core.errors import TargetError
from tilewright.core.records import Placement
from tilewright.core.targets import Resources, Target
from tilewright.core.units import format_bytes
from tilewright.graph.network import Array
from tilewright.hardware.cards import OLDEST, Card
from tilewright.hardware.gpus import CudaLaunch

_SUCCESS, _NO_DEVICE, _NO_MEMORY = (
    "CUDA_SUCCESS",
    "CUDA_ERROR_NO_DEVICE",
    "CUDA_ERROR_OUT_OF_MEMORY",
)
_STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        *("ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "CONTEXT_IS_DESTROYED", "ASSERT", "UNKNOWN"),
        *("HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS"),
        *("INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED", "TENSOR_MEMORY_LEAK"),
        *("ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE", "CONTAINED", "EXTERNAL_DEVICE"),
    )
)
"""Errors after which a context gives no other answer (CUDA driver API, `CUresult`)."""
_OLD_DRIVER = frozenset({"CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE"})
_NON_BLOCKING = 1
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that tells NVIDIA's driver which cards a process sees."""
NO_GPU = "NVIDIA's driver is here, but it sees no GPU"
_TYPES = {
    (True, 4): ctypes.c_int32,
    (True, 8): ctypes.c_int64,
    (False, 4): ctypes.c_float,
    (False, 8): ctypes.c_double,
}
"""How a number is given to a kernel, by whether it is whole and by the bytes of the parameter."""
_KILO, _MILLI = 1e3, 1e-3


def bindings() -> Any:
    """The module of NVIDIA's driver, initialised. Raises TargetError where the package, or the
    driver itself, is not installed."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        raise TargetError(
            "NVIDIA's driver cannot be called: the Python package cuda-bindings is not installed",
            hint="pip install 'tilewright[cuda]' adds it; a GPU and its driver must be here, too.",
        )
    return started(import_module("cuda.bindings.driver"))


def started(library: Any) -> Any:
    """The module `cuda.bindings.driver`, initialised. Raises TargetError where no driver is
    installed, or it does not start."""
    try:
        (status,) = library.cuInit(0)
    except RuntimeError as error:
        raise TargetError(
            f"NVIDIA's driver is not installed on this machine: {error}",
            hint="`nvidia-smi` shows whether there is one, and which GPUs it sees.",
        ) from None
    if status.name not in (_SUCCESS, _NO_DEVICE):
        raise TargetError(f"NVIDIA's driver does not start: {status.name}")
    return library


def find_cards(library: Any = None) -> tuple[Card, ...]:
    """The GPUs of this machine, in the driver's order; none where it sees none. Nothing of a GPU is
    taken. Raises TargetError without a driver.

    `library` is the module `cuda.bindings.driver`, initialised; imported when it is not given.
    """
    library = library or bindings()
    status, count = library.cuDeviceGetCount()
    if status.name != _SUCCESS:
        return ()
    return tuple(_card(library, _asked(library, "cuDeviceGet", it)) for it in range(count))


def _card(library: Any, device: Any) -> Card:
    def attribute(name: str) -> int:
        which = getattr(library.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_asked(library, "cuDeviceGetAttribute", which, device))

    bits = attribute("GLOBAL_MEMORY_BUS_WIDTH")
    return Card(
        name=_asked(library, "cuDeviceGetName", 256, device).split(b"\0")[0].decode(),
        identity=bytes(_asked(library, "cuDeviceGetUuid", device).bytes).hex(),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(_asked(library, "cuDeviceTotalMem", device)),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        clock_hz=_KILO * attribute("CLOCK_RATE"),
        bytes_per_s=2 * _KILO * attribute("MEMORY_CLOCK_RATE") * bits / 8,
    )


def number_of(cards: tuple[Card, ...], target: Target, instance: str = "") -> int:
    """Which of the cards is the `instance`; where none is, the first of a target's model, or one of
    an architecture where the target names only that. Raises TargetError where none is, and for one
    that is too old."""
    if not cards:
        raise TargetError(NO_GPU)
    arch = target.architecture.rstrip("a")
    of_arch = [number for number, card in enumerate(cards) if card.arch == arch]
    agree = [it for it in of_arch if target.model in (cards[it].model, target.architecture, arch)]
    if not agree:
        here = ", ".join(card.name for card in cards)
        raise TargetError(f"no {target.model} is in this machine, but {here}")
    number = next((it for it in agree if cards[it].instance == instance), agree[0])
    check_age(cards[number])
    return number


def environment_of(placement: Placement) -> dict[str, str]:
    """In which a process sees the card of a placement alone; empty where there are not several."""
    if placement.target.launch is None:
        return {}
    with suppress(TargetError):
        cards = find_cards()
        number = number_of(cards, placement.target, placement.device.instance)
        if len(cards) > 1:
            return {VISIBLE: f"GPU-{UUID(cards[number].identity)}"}
    return {}


def check_age(card: Card) -> None:
    """Raise TargetError for a card that nothing compiles for."""
    if card.capability < OLDEST:
        raise TargetError(
            f"the {card.name} is too old: its architecture is {card.arch}, and kernels are "
            "compiled for sm_75 and newer",
            hint="Its kernels can be looked at: `tilewright explain op:... --target "
            f"'cuda -arch={card.arch}'`.",
        )


def open_driver(target: Target, resources: Resources | None = None) -> Driver:
    """The first GPU here that is of a target's model, opened once in this process. With `resources`
    of fewer multiprocessors than it has, its kernels run on so many. Raises TargetError where there
    is none, and where the driver does not give exactly so many."""
    library = bindings()
    cards = find_cards(library)
    number = number_of(cards, target)
    whole = resources is None or resources.cores >= cards[number].multiprocessors
    return _opened(number, 0 if whole or resources is None else resources.cores)


@cache
def _opened(number: int, multiprocessors: int) -> Driver:
    library = bindings()
    return NvidiaDriver(find_cards(library)[number], number, library, multiprocessors)


def _green_context(library: Any, device: Any, count: int) -> Any:
    """A context of a GPU whose streams have exactly so many multiprocessors. Raises TargetError
    where the driver gives no such context, or another number."""
    kind = library.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    every = _asked(library, "cuDeviceGetDevResource", device, kind)
    (group,) = _asked(library, "cuDevSmResourceSplitByCount", 1, every, 0, count)
    if group.sm.smCount != count:
        raise TargetError(
            f"the driver gives {group.sm.smCount} multiprocessors where {count} were asked for",
            hint=f"Ask for {group.sm.smCount}.",
        )
    description = _asked(library, "cuDevResourceGenerateDesc", [group], 1)
    flags = library.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    return _asked(library, "cuGreenCtxCreate", description, device, flags)


def _asked(library: Any, function: str, *arguments: Any) -> Any:
    """What a function of the driver returns. Raises what its error means."""
    status, *found = getattr(library, function)(*arguments)
    if status.name != _SUCCESS:
        raise _error(library, status, function)
    return found[0] if found else None


def _error(library: Any, status: Any, function: str) -> DriverError | OutOfDeviceMemory:
    name = str(status.name)
    if name == _NO_MEMORY:
        _, free, total = library.cuMemGetInfo()
        return OutOfDeviceMemory(
            f"the GPU's memory does not suffice: {format_bytes(free)} of {format_bytes(total)} are "
            f"free ({function})"
        )
    said = library.cuGetErrorString(status)[1]
    message = f"{said.decode() if said else 'no reason given'} ({function})"
    if name in _STICKY:
        return StickyFault(name, message)
    hint = "Cubins of CUDA 13 need NVIDIA's driver 580 or newer." if name in _OLD_DRIVER else None
    return DriverError(name, message, hint=hint)


class _Loaded:
    """The kernels of a cubin, found when they are first started."""

    def __init__(self, library: Any, module: Any) -> None:
        self._library = library
        self._module = module
        self._functions: dict[str, tuple[Any, dict[int, int]]] = {}

    def __del__(self) -> None:
        self._library.cuModuleUnload(self._module)

    def function(self, launch: CudaLaunch) -> tuple[Any, dict[int, int]]:
        """A kernel, allowed as much dynamic shared memory as a launch asks for; and the bytes of
        those parameters that are numbers, by their places."""
        name, shared = launch.kernel, launch.dynamic_shared_bytes
        key = f"{name} {shared}"
        if key not in self._functions:
            asked, library = _asked, self._library
            function = asked(library, "cuModuleGetFunction", self._module, name.encode())
            if shared:
                attribute = (
                    library.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                )
                asked(library, "cuFuncSetAttribute", function, attribute, shared)
            self._functions[key] = (
                function,
                {
                    place: _parameter_bytes(library, function, place)
                    for place, given in enumerate(launch.arguments)
                    if not isinstance(given, str)
                },
            )
        return self._functions[key]


def _parameter_bytes(library: Any, function: Any, place: int) -> int:
    status, _offset, size = library.cuFuncGetParamInfo(function, place)
    if status.name != _SUCCESS:
        raise _error(library, status, "cuFuncGetParamInfo")
    return int(size)


class _Instantiated:
    """A graph that can be replayed."""

    def __init__(self, library: Any, graph: Any) -> None:
        self._library = library
        self.graph = _asked(library, "cuGraphInstantiate", graph, 0)

    def __del__(self) -> None:
        if "graph" in self.__dict__:
            self._library.cuGraphExecDestroy(self.graph)


class NvidiaDriver:
    """A GPU by NVIDIA's driver, in its primary context; any thread may call. What the methods mean
    is said at `Driver`. Kernels run on so many `multiprocessors`, on all with 0: their streams are
    those of a green context then, and all else is still the primary context's, since only one
    thread at a time may enter a green one. Raises TargetError for a number that cannot be had."""

    def __init__(self, card: Card, number: int, library: Any, multiprocessors: int = 0) -> None:
        self.card = card
        self._library = library
        device = _asked(library, "cuDeviceGet", number)
        self._context = _asked(library, "cuDevicePrimaryCtxRetain", device)
        self._entered = threading.local()
        self._green: Any = None
        if multiprocessors:
            self._enter()
            try:
                self._green = _green_context(library, device, multiprocessors)
            except (AttributeError, RuntimeError) as error:  # what the package says of old drivers
                raise TargetError(
                    f"kernels cannot keep to {multiprocessors} multiprocessors: {error}",
                    hint="It takes NVIDIA's driver of CUDA 12.5 or newer, and a package "
                    "cuda-bindings that is as new.",
                ) from None
        self._streams: list[Any] = []
        self.stream()

    def free_bytes(self) -> int:
        self._enter()
        status, free, _total = self._library.cuMemGetInfo()
        if status.name != _SUCCESS:
            raise _error(self._library, status, "cuMemGetInfo")
        return int(free)

    def load(self, source: str, binary: bytes) -> _Loaded:
        return _Loaded(self._library, self._ask("cuModuleLoadData", binary))

    def allocate(self, size: int) -> Memory:
        return Memory(address=int(self._ask("cuMemAlloc", max(1, size))), bytes=size)

    def release(self, memory: Memory) -> None:
        self.synchronise()
        self._ask("cuMemFree", memory.address)

    def upload(self, memory: Memory, array: Array) -> None:
        check_fits(memory, array)
        if array.nbytes:
            source, stream = array.ctypes.data, self._streams[0]
            self._ask("cuMemcpyHtoDAsync", memory.address, source, array.nbytes, stream)

    def download(self, memory: Memory, array: Array) -> None:
        check_fits(memory, array)
        if array.nbytes:
            goal, stream = array.ctypes.data, self._streams[0]
            self._ask("cuMemcpyDtoHAsync", goal, memory.address, array.nbytes, stream)
        self._ask("cuStreamSynchronize", self._streams[0])

    def copy(self, goal: Memory, source: Memory) -> None:
        if goal.bytes:
            places = goal.address, source.address
            self._ask("cuMemcpyDtoDAsync", *places, goal.bytes, self._streams[0])

    def fill(self, memory: Memory, byte: int, stream: Stream = None) -> None:
        if memory.bytes:
            on = stream or self._streams[0]
            self._ask("cuMemsetD8Async", memory.address, byte, memory.bytes, on)

    def launch(
        self,
        module: _Loaded,
        launch: CudaLaunch,
        arrays: Mapping[str, Memory],
        stream: Stream = None,
    ) -> None:
        self._enter()
        function, sizes = module.function(launch)
        values: list[int | float] = []
        types: list[Any] = []
        for place, given in enumerate(launch.arguments):
            if isinstance(given, str):
                values.append(arrays[given].address)
                types.append(ctypes.c_void_p)
            else:
                values.append(given)
                types.append(_TYPES[isinstance(given, int), sizes[place]])
        shape = (*launch.grid, *launch.block, launch.dynamic_shared_bytes)
        parameters = (tuple(values), tuple(types))
        self._ask("cuLaunchKernel", function, *shape, stream or self._streams[0], parameters, 0)

    def stream(self) -> Stream:
        if self._green is None:
            made = self._ask("cuStreamCreate", _NON_BLOCKING)
        else:
            made = self._ask("cuGreenCtxStreamCreate", self._green, _NON_BLOCKING, 0)
        self._streams.append(made)
        return self._streams[-1]

    def event(self) -> Event:
        return self._ask("cuEventCreate", 0)

    def record(self, event: Event, stream: Stream = None) -> None:
        self._ask("cuEventRecord", event, stream or self._streams[0])

    def wait(self, event: Event, stream: Stream = None) -> None:
        self._ask("cuStreamWaitEvent", stream or self._streams[0], event, 0)

    def elapsed_s(self, first: Event, second: Event) -> float:
        self._ask("cuEventSynchronize", second)
        return _MILLI * float(self._ask("cuEventElapsedTime", first, second))

    def captured(self, work: Callable[[], None]) -> Graph:
        mode = self._library.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._ask("cuStreamBeginCapture", self._streams[0], mode)
        try:
            work()
        except BaseException:
            self._library.cuStreamEndCapture(self._streams[0])
            raise
        graph = self._ask("cuStreamEndCapture", self._streams[0])
        try:
            return _Instantiated(self._library, graph)
        finally:
            self._ask("cuGraphDestroy", graph)

    def replay(self, graph: Graph) -> None:
        self._ask("cuGraphLaunch", graph.graph, self._streams[0])

    def synchronise(self) -> None:
        for stream in self._streams:
            self._ask("cuStreamSynchronize", stream)

    def _ask(self, function: str, *arguments: Any) -> Any:
        self._enter()
        return _asked(self._library, function, *arguments)

    def _enter(self) -> None:
        """Make the context the calling thread's."""
        if not hasattr(self._entered, "context"):
            _asked(self._library, "cuCtxSetCurrent", self._context)
            self._entered.context = self._context

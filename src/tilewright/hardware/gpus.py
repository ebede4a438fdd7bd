"""NVIDIA's GPUs and the functions that run on them, as far as both are known before anything runs:
what they are told apart by, their targets, and the values that describe code for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilewright.core.codec import canonical_json
from tilewright.core.errors import TargetError, close_matches
from tilewright.core.targets import ComputeUnit, LaunchLimits, MemoryLevel, Target
from tilewright.hardware.datasheets import (
    BYTE_DOTS,
    LIMITS,
    MODELS,
    OLD_MODELS,
    TF32,
    WARP_SHARES,
    known_model,
    model_name,
)

_KIB = 1024
_GIGA, _TERA = 1e9, 1e12
_THREADS_PER_BLOCK, _WARP = 1024, 32
_STATIC_SHARED_BYTES = 48 * _KIB
_GRID = (2**31 - 1, 65_535, 65_535)
_REGISTERS, _THREAD_REGISTERS = 65_536, 255
_SHARED_UNIT_BYTES, _RESERVED_SHARED_BYTES = 128, _KIB
_OLD, _OLD_SHARED_UNIT_BYTES = ("sm_6", "sm_7"), 256
"""Architectures that reserve no shared memory, and deal it out in larger units."""
_LINE_BYTES = 128
_SINGLE = "float32"
_BYTES_OF_A_DOT = 4
_L2_BYTES_PER_CYCLE = 32
"""What one multiprocessor gets from the second-level cache in a cycle, roughly: 26 on a V100, 47 on
an A100 (both by microbenchmarks: Jia et al., 2018; Abdelkhalik et al., 2022)."""
_DEVICE_MEMORY_BYTES = 16 << 30
"""A modest card's; what is really free is asked of the driver."""
_EXAMPLE = "Describe one: --target 'cuda -model=H100', or 'cuda -arch=sm_90'."


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as its compute capability and its datasheet describe it.

    `arch` is nvcc's name of the compute capability, `sm_90`. The limits are those of one
    multiprocessor. `multiprocessors`, `flop_per_s` (fp32, without Tensor Cores) and `bytes_per_s`
    are None where the model is not known.
    """

    model: str
    arch: str
    target: str
    most_threads: int
    most_blocks: int
    shared_bytes: int
    block_shared_bytes: int
    multiprocessors: int | None = None
    flop_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerReport:
    """What ptxas says of one function: registers of a thread, bytes that a thread stores and loads
    because registers did not suffice, its stack frame, and shared memory of a block."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """A function that a GPU runs: how it is launched, and what its lowered code says.

    `loads` are the loads from global memory that a thread executes, a vector counted once where its
    elements lie side by side; `guarded` those of them behind a condition, as the border of a padded
    input is; `comparisons` those in all conditions that it evaluates; `sectors` the 32-byte sectors
    that one load touches for a warp, on average: 4 is a full one of fp32, 1 the same address for
    all, 32 a sector for each thread. `shared_bytes` are a block's; `parameters` the names of the
    function's own. `report` is None where nothing could compile it.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    loads: float
    guarded: float
    comparisons: float
    stores: float
    sectors: float
    shared_bytes: int
    parameters: tuple[str, ...] = ()
    report: CompilerReport | None = None

    @property
    def blocks(self) -> int:
        """Blocks of a launch."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaLaunch:
    """A kernel as its host starts it: its name, blocks and threads along x, y and z, bytes of
    dynamic shared memory of a block, and its arguments in order: names of arrays, and numbers."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str | int | float, ...]
    dynamic_shared_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaProgram:
    """CUDA C++, the launches of its kernels in order, and what their host allocates for them:
    number of elements and element type by name. All other arrays are the caller's."""

    source: str
    launches: tuple[CudaLaunch, ...]
    workspaces: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCode:
    """An operator as CUDA code.

    `rule` is its implementation, of TVM's own schedules the rule that applied; `kernels` are in the
    order in which they run; `binary` is a cubin, empty where `reason` says why there is none.
    """

    rule: str
    kernels: tuple[CudaKernel, ...]
    source: str
    binary: bytes = b""
    reason: str = ""


def is_cuda(target: str) -> bool:
    """Whether a person means a GPU of NVIDIA's: `cuda`, `cuda -model=H100`, or TVM's JSON."""
    text = target.strip()
    if not text.startswith("{"):
        return text.split(maxsplit=1)[:1] == ["cuda"]
    try:
        return json.loads(text).get("kind") == "cuda"
    except (ValueError, AttributeError):
        return False


def gpu_of(target: Mapping[str, Any], library: Any = None) -> Gpu:
    """The GPU that a target of kind `cuda` describes by `arch` or `model`; without both, this
    machine's.

    `library` is nvidia-ml-py's module, imported when it is not given. Raises TargetError for a
    model or an architecture that is not known, and where no GPU is here.
    """
    unknown = sorted(set(target) - {"kind", "arch", "model"})
    if unknown:
        raise TargetError(
            f"a cuda target has no option {unknown[0]!r} here",
            hint="Known: arch, as in sm_90, and model, as in H100.",
        )
    given = {key: str(target[key]) for key in ("arch", "model") if key in target}
    if not given:
        return _here(library)
    model = given.get("model", "")
    known = known_model(model)
    _refuse_old(OLD_MODELS.get(model, given.get("arch", "")), model)
    if model and known is None:
        raise TargetError(
            f"no datasheet of the GPU {model!r} is known",
            hint=close_matches(model, sorted(MODELS)) or "Give its arch alone, as in sm_90.",
        )
    own = known[0] if known else ""
    arch = given.get("arch") or own
    if own and arch.rstrip("a") != own:
        raise TargetError(
            f"the architecture of the {model} is {own}, not {arch}",
            hint="Give only the model, or only its architecture.",
        )
    return _described(model, arch)


def gpu_of_target(target: Target) -> Gpu:
    """The GPU that kernels for a target are for: its model's datasheet where there is one, else its
    architecture. Raises TargetError for an architecture that is not known."""
    return _described(model_name(target.model) or "", target.architecture)


def _refuse_old(arch: str, model: str) -> None:
    """Raise TargetError for a GPU before the first one whose limits are known."""
    first = next(iter(LIMITS))
    prefix, _, number = arch.rstrip("a").partition("_")
    if prefix == "sm" and number.isdecimal() and int(number) < int(first.removeprefix("sm_")):
        which = (
            f"the {model} is too old: its architecture is {arch}" if model else f"{arch} is too old"
        )
        raise TargetError(
            f"{which}, and GPUs are known here from {first} on",
            hint="Kernels are compiled and run for sm_75 and newer, those of older ones are "
            "predicted.",
        )


def gpu_target(gpu: Gpu) -> Target:
    """A GPU as kernels see it.

    An architecture without a model stands for the first model of it that is known here: kernels for
    sm_90 are chosen for a H100.
    """
    arch = gpu.arch.rstrip("a")
    _, _, shared_kib, _, multiply_adds = LIMITS[arch]
    typical = next(name for name, model in MODELS.items() if model[0] == arch)
    named = model_name(gpu.model) or typical
    _, cores, tera_flop, giga_bytes, l2_mib = MODELS[named]
    clock_hz = tera_flop * _TERA / (2 * multiply_adds * cores)
    levels = {
        "shared": (shared_kib * _KIB, 1, _LINE_BYTES * clock_hz),
        "L2": (int(l2_mib * _KIB * _KIB), cores, _L2_BYTES_PER_CYCLE * cores * clock_hz),
        "memory": (_DEVICE_MEMORY_BYTES, cores, giga_bytes * _GIGA),
    }
    unit = ComputeUnit(
        name="cuda cores",
        element=_SINGLE,
        accumulator=_SINGLE,
        granule=(1, 1, 1),
        operations_per_cycle=2 * multiply_adds,
    )
    return Target(
        kind="cuda",
        model=gpu.model or arch,
        architecture=gpu.arch,
        features=(),
        vector_bytes=0,
        vector_registers=0,
        units=(unit, *_byte_dots(arch), *_matrix_units(named, arch, cores * clock_hz)),
        memory=tuple(
            MemoryLevel(
                name=name, bytes=size, cores=shared_by, line_bytes=_LINE_BYTES, bytes_per_s=speed
            )
            for name, (size, shared_by, speed) in levels.items()
        ),
        cores=cores,
        tvm=gpu.target,
        launch=_launch_limits(arch),
        clock_hz=clock_hz,
    )


def _byte_dots(arch: str) -> tuple[ComputeUnit, ...]:
    """What multiplies four bytes by four, where there is the instruction."""
    if arch not in BYTE_DOTS:
        return ()
    unit = ComputeUnit(
        name="dp4a",
        element="int8",
        accumulator="int32",
        granule=(1, 1, _BYTES_OF_A_DOT),
        operations_per_cycle=2 * _BYTES_OF_A_DOT * BYTE_DOTS[arch],
    )
    return (unit,)


def _matrix_units(model: str, arch: str, cycles_per_s: float) -> tuple[ComputeUnit, ...]:
    """What multiplies matrices of a warp, where it takes singles."""
    if model not in TF32:
        return ()
    reached = TF32[model] * _TERA * WARP_SHARES.get(arch, 1.0)
    unit = ComputeUnit(
        name="tensor cores",
        element="tf32",
        accumulator=_SINGLE,
        granule=(16, 8, 8),
        operations_per_cycle=round(reached / cycles_per_s),
    )
    return (unit,)


def _launch_limits(arch: str) -> LaunchLimits:
    threads, blocks, shared_kib, block_shared_kib, _ = LIMITS[arch]
    return LaunchLimits(
        grid=_GRID,
        block_threads=_THREADS_PER_BLOCK,
        block_shared_bytes=block_shared_kib * _KIB,
        static_shared_bytes=_STATIC_SHARED_BYTES,
        thread_registers=_THREAD_REGISTERS,
        threads=threads,
        blocks=blocks,
        registers=_REGISTERS,
        shared_bytes=shared_kib * _KIB,
        reserved_shared_bytes=0 if arch.startswith(_OLD) else _RESERVED_SHARED_BYTES,
        shared_unit_bytes=_OLD_SHARED_UNIT_BYTES if arch.startswith(_OLD) else _SHARED_UNIT_BYTES,
        warp=_WARP,
    )


def _described(model: str, arch: str) -> Gpu:
    if arch.rstrip("a") not in LIMITS:
        raise TargetError(
            f"the limits of {arch!r} are not known", hint="Known: " + ", ".join(LIMITS)
        )
    threads, blocks, shared_kib, block_shared_kib, _ = LIMITS[arch.rstrip("a")]
    known = known_model(model)
    target = {
        "kind": "cuda",
        "arch": arch,
        "max_num_threads": _THREADS_PER_BLOCK,
        "max_threads_per_block": _THREADS_PER_BLOCK,
        "max_shared_memory_per_block": _STATIC_SHARED_BYTES,
        "thread_warp_size": _WARP,
    }
    return Gpu(
        model=model,
        arch=arch,
        target=canonical_json(target),
        most_threads=threads,
        most_blocks=blocks,
        shared_bytes=shared_kib * _KIB,
        block_shared_bytes=block_shared_kib * _KIB,
        multiprocessors=known[1] if known else None,
        flop_per_s=known[2] * _TERA if known else None,
        bytes_per_s=known[3] * _GIGA if known else None,
    )


def nvml_library() -> Any:
    """nvidia-ml-py's module, None where that is not installed."""
    return import_module("pynvml") if find_spec("pynvml") is not None else None


def _here(library: Any) -> Gpu:
    """This machine's first GPU, by NVML."""
    library = library or nvml_library()
    if library is None:
        raise TargetError(
            "no GPU can be looked for: the Python package nvidia-ml-py is not installed",
            hint=f"pip install 'tilewright[nvml]' adds it. {_EXAMPLE}",
        )
    try:
        library.nvmlInit()
        handle = library.nvmlDeviceGetHandleByIndex(0)
        name = str(library.nvmlDeviceGetName(handle))
        major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
    except library.NVMLError as error:
        raise TargetError(f"NVML gives no GPU: {error}", hint=_EXAMPLE) from None
    return _described(name, f"sm_{major}{minor}")

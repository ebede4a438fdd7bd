"""Executes CUDA C++ on this machine's CPU, without a GPU: to test kernels, not to time them.

    add = CudaLaunch(kernel="add", grid=(4, 1, 1), block=(256, 1, 1), arguments=("a", "b", "sum"))
    arrays = {"a": a, "b": b, "sum": np.full(1024, np.nan, np.float32)}
    cuda_executable(text).run([add], arrays, seed=3)

Every thread is a fiber, barriers are real, a warp runs until it waits, and which warp goes next is
drawn from the seed, as is the order of the blocks. Asynchronous copies take place when they are
waited for. What a GPU would let pass or answer with garbage is a `KernelFault` that says where: an
access out of bounds or unaligned, a read of shared memory that nobody wrote, a race between two
barriers, a barrier that not all threads reach. What a driver would refuse is a `LaunchRefused`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tilewright.core.errors import ModelError, NegativeVerdict, TargetError
from tilewright.core.scratch import PrivateFolder, scratch_folder
from tilewright.core.settings import read_settings
from tilewright.graph.network import Array
from tilewright.hardware.cards import broken_limit
from tilewright.hardware.gpus import CudaLaunch, Gpu, gpu_target
from tilewright.hardware.target import parse_gpu
from tilewright.testing.cuda_text import CudaFunction, cuda_functions, executable_text

_RUNTIME = Path(__file__).with_name("cuda_runtime")
_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-std=gnu++17", "-fPIC", "-w", "-fvisibility=hidden")
_OF_KERNELS = ("-fsanitize=thread", "-fno-strict-aliasing", "-fwrapv", "-fno-tree-sra")
_NEEDED = "_Float16 half = 1;"
_TIMEOUT_S = 120.0
_SLOT = 8
_ONE_AT_A_TIME = Lock()
"""A library has one set of threads."""


class KernelFault(NegativeVerdict):
    """A kernel did what it must not: which thread, what, and where in the text."""


class LaunchRefused(NegativeVerdict):
    """No driver would start this launch: which limit it breaks."""


@cache
def compiler() -> str | None:
    """The C++ compiler that kernels are executed with: the first on the PATH that knows half
    precision, None where there is none."""
    for found in filter(None, map(shutil.which, _COMPILERS)):
        asked = [found, *_FLAGS, *_OF_KERNELS, "-fsyntax-only", "-x", "c++", "-"]
        done = subprocess.run(asked, input=_NEEDED, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode == 0:
            return found
    return None


class CudaExecutable:
    """CUDA text that was compiled for this machine's CPU; `cuda_executable` makes it."""

    def __init__(self, text: str, library: Path, gpu: Gpu) -> None:
        self.functions: Mapping[str, CudaFunction] = cuda_functions(text)
        self._gpu = gpu
        self._library = ctypes.CDLL(str(library))
        self._library.cuda_run.restype = ctypes.c_char_p

    def run(
        self,
        launches: Sequence[CudaLaunch],
        arrays: Mapping[str, Array],
        *,
        seed: int = 0,
        blocks: int | None = None,
    ) -> None:
        """Execute launches one after the other, on arrays that they change in place.

        Arrays are contiguous; one that is not writable may only be read. Another `seed` draws
        another order of blocks, warps and lanes. Of large launches, at most so many drawn `blocks`
        are executed; what the others would write stays as it was. Raises LaunchRefused,
        KernelFault, and ModelError for a launch whose arguments do not fit.
        """
        for launch in launches:
            self._check(launch)
            with _ONE_AT_A_TIME:
                self._start(launch, arrays, seed, blocks or 0)

    def static_shared_bytes(self, kernel: str) -> int:
        """Shared memory that a kernel declares with a size, for each block, bytes."""
        return self._static(kernel)[1]

    def _static(self, kernel: str) -> tuple[int | None, int]:
        size = ctypes.c_size_t()
        place = getattr(self._library, f"cuda_static_{kernel}")
        place.restype = ctypes.c_void_p
        return place(ctypes.byref(size)), size.value

    def _check(self, launch: CudaLaunch) -> None:
        function = self.functions.get(launch.kernel)
        if function is None:
            known = ", ".join(self.functions) or "none"
            raise ModelError(f"the CUDA text has no kernel {launch.kernel!r}; it has {known}")
        if len(launch.arguments) != len(function.parameters):
            raise ModelError(
                f"{launch.kernel} takes {len(function.parameters)} arguments, "
                f"not {len(launch.arguments)}"
            )
        check_launch(launch, self._gpu, self.static_shared_bytes(launch.kernel))
        threads, most = int(np.prod(launch.block)), function.most_threads
        if most is not None and threads > most:
            raise LaunchRefused(
                f"{launch.kernel} has {threads} threads in a block; its launch bounds allow {most}"
            )

    def _start(
        self, launch: CudaLaunch, arrays: Mapping[str, Array], seed: int, blocks: int
    ) -> None:
        function = self.functions[launch.kernel]
        values, taken = bytearray(), list[tuple[int, str, Array]]()
        for place, (given, parameter) in enumerate(
            zip(launch.arguments, function.parameters, strict=True)
        ):
            if parameter.is_array:
                taken.append((place, str(given), _array(launch, given, arrays)))
                values += bytes(_SLOT)
                continue
            if isinstance(given, str):
                raise ModelError(f"{launch.kernel} wants a number as {parameter.name}")
            values += bytes(_scalar(parameter.type)(given)).ljust(_SLOT, b"\0")
        static, static_bytes = self._static(launch.kernel)
        count = len(taken)
        description = _Launch(
            grid=launch.grid,
            block=launch.block,
            dynamic_bytes=launch.dynamic_shared_bytes,
            static_bytes=static_bytes,
            static_memory=static,
            seed=seed,
            blocks=blocks,
            kernel=ctypes.cast(
                getattr(self._library, f"cuda_call_{launch.kernel}"), ctypes.c_void_p
            ),
            values=bytes(values),
            arguments=len(launch.arguments),
            arrays=count,
            names=(ctypes.c_char_p * count)(*(name.encode() for _, name, _ in taken)),
            data=(ctypes.c_void_p * count)(*(array.ctypes.data for _, _, array in taken)),
            bytes=(ctypes.c_size_t * count)(*(array.nbytes for _, _, array in taken)),
            writable=(ctypes.c_int * count)(*(array.flags.writeable for _, _, array in taken)),
            places=(ctypes.c_int * count)(*(place for place, _, _ in taken)),
        )
        said = self._library.cuda_run(ctypes.byref(description))
        if said is not None:
            raise KernelFault(f"{launch.kernel}: {said.decode()}")


class _Launch(ctypes.Structure):
    """`cuda_launch` of cuda_runtime/runtime.cpp."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_bytes", ctypes.c_size_t),
        ("static_bytes", ctypes.c_size_t),
        ("static_memory", ctypes.c_void_p),
        ("seed", ctypes.c_uint64),
        ("blocks", ctypes.c_size_t),
        ("kernel", ctypes.c_void_p),
        ("values", ctypes.c_char_p),
        ("arguments", ctypes.c_int),
        ("arrays", ctypes.c_int),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("bytes", ctypes.POINTER(ctypes.c_size_t)),
        ("writable", ctypes.POINTER(ctypes.c_int)),
        ("places", ctypes.POINTER(ctypes.c_int)),
    ]


def _array(launch: CudaLaunch, given: str | int | float, arrays: Mapping[str, Array]) -> Array:
    if not isinstance(given, str) or given not in arrays:
        raise ModelError(
            f"{launch.kernel} wants an array, and {given!r} names none",
            hint=f"Given: {', '.join(arrays)}.",
        )
    array = arrays[given]
    if not array.flags.c_contiguous:
        raise ModelError(f"the array {given!r} is not contiguous")
    return array


_SCALARS = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int64_t": ctypes.c_int64,
    "long long": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "unsigned": ctypes.c_uint32,
    "unsigned int": ctypes.c_uint32,
    "uint": ctypes.c_uint32,
    "uint32_t": ctypes.c_uint32,
    "int": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "bool": ctypes.c_bool,
}


def _scalar(kind: str) -> Any:
    if kind not in _SCALARS:
        raise ModelError(f"no argument of type {kind} can be given", hint=", ".join(_SCALARS))
    return _SCALARS[kind]


def check_launch(launch: CudaLaunch, gpu: Gpu, static_shared_bytes: int = 0) -> None:
    """Raise LaunchRefused for a launch that the driver of a GPU refuses: blocks along an axis,
    threads of a block, shared memory of a block."""
    broken = broken_limit(launch, gpu_target(gpu).limits, static_shared_bytes=static_shared_bytes)
    if broken is not None:
        raise LaunchRefused(f"{broken} on {gpu.arch}")


def cuda_executable(text: str, arch: str = "sm_90", *, optimized: bool = False) -> CudaExecutable:
    """CUDA text compiled for this machine's CPU, as if for a GPU of that architecture; a text is
    compiled once in a process.

    `optimized` compiles for two or three times as long and runs in half of the time: for large
    shapes. Raises TargetError where no C++ compiler is here, or the architecture is not known, and
    ModelError for text that cannot be compiled.
    """
    gpu = parse_gpu(f"cuda -arch={arch}")
    return CudaExecutable(text, _compiled(text, arch, "-O1" if optimized else "-O0"), gpu)


@cache
def _folder() -> PrivateFolder:
    """Where this process keeps what it compiled; it goes with the process."""
    return scratch_folder()


@cache
def _runtime() -> Path:
    """The object file with which each text is linked."""
    asked = ["-O2", *_FLAGS, "-c", str(_RUNTIME / "runtime.cpp")]
    return _kept("runtime.o", asked, "the runtime")


@cache
def _standard_library() -> Path:
    """Stands for C++'s own library while a text is linked: it has no more than that one's name, so
    that the linker need not read thousands of others, and the loader finds what is asked of it."""
    asked = ["-shared", "-nostdlib", "-Wl,-soname,libstdc++.so.6", "-x", "c++", os.devnull]
    return _kept("libstdc++.so.6", asked, "the library's name")


@cache
def _header(level: str) -> Path:
    """The header that precedes each text; what was compiled of it lies beside it."""
    header, names = _folder().path / f"names{level}.h", _RUNTIME / "names.h"
    header.write_text(f'#include "{names}"\n', encoding="utf-8")
    asked = [*_FLAGS, level, *_OF_KERNELS, "-x", "c++-header", str(names)]
    Path(f"{header}.gch").symlink_to(_kept(f"names{level}.gch", asked, "the header"))
    return header


def _kept(name: str, arguments: Sequence[str], what: str) -> Path:
    """What the compiler makes of the runtime, from the cache folder where it was made before; in
    this process's own folder where nothing can be kept there."""
    kept = read_settings().cache / "cuda_runtime" / _made_of() / name
    try:
        if kept.exists():
            return kept
        making = PrivateFolder(kept.parent, "making-")
    except OSError:
        kept = _folder().path / name
        _run([*arguments, "-o", str(kept)], what)
        return kept
    with making as folder:
        _run([*arguments, "-o", str(folder / name)], what)
        return (folder / name).replace(kept)


@cache
def _made_of() -> str:
    """A digest of the runtime's sources and where they lie, of the compiler and its flags. What is
    compiled of a header names the files that it was made of, and a compiler may look at them."""
    told = sha256(" ".join((*_FLAGS, *_OF_KERNELS)).encode())
    found = Path(compiler() or _COMPILERS[0]).resolve()
    for path in (found, *sorted(_RUNTIME.iterdir())):
        state = path.stat() if path.exists() else None
        told.update(f"{path} {state and (state.st_size, state.st_mtime_ns)}".encode())
    for path in sorted(_RUNTIME.iterdir()):
        told.update(path.read_bytes())
    return told.hexdigest()[:32]


@cache
def _compiled(text: str, arch: str, level: str) -> Path:
    name = sha256(f"{arch} {level}\n{text}".encode()).hexdigest()[:16]
    source, library = (_folder().path / f"{name}{ending}" for ending in (".cu", ".so"))
    number = arch.removeprefix("sm_").rstrip("a") + "0"
    code = f"#define __CUDA_ARCH__ {number}\n{executable_text(text)}"
    source.write_text(code, encoding="utf-8")
    flags = [*_FLAGS, level, *_OF_KERNELS]
    given = ["-include", str(_header(level)), "-x", "c++", str(source), "-x", "none"]
    linked = [str(_runtime()), "-shared", "-nodefaultlibs", "-Wl,-Bsymbolic,--no-as-needed"]
    libraries = [str(_standard_library()), "-lm", "-lc", "-lgcc", "-lgcc_s"]
    _run([*flags, *given, *linked, *libraries, "-o", str(library)], "the CUDA text")
    return library


def _run(arguments: Sequence[str], what: str) -> None:
    """Run the C++ compiler; ModelError with its first complaint where it refuses."""
    found = compiler()
    if found is None:
        raise TargetError(
            "CUDA text is executed by way of a C++ compiler that knows half precision, and none is "
            "on the PATH",
            hint=f"Looked for {', '.join(_COMPILERS)}; g++ does from version 12 on.",
        )
    done = subprocess.run(  # noqa: S603 - a compiler found on the PATH
        [found, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if "error" in line]
        complaint = lines[0] if lines else done.stderr.strip()[-200:]
        raise ModelError(f"{what} cannot be compiled: {complaint}")

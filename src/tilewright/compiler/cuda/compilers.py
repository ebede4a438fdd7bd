"""NVIDIA's compilers, which need no GPU: a cubin of CUDA C++, and what they report of it.

nvcc, of the CUDA toolkit, where it is on the PATH; else NVRTC, of NVIDIA's packages on PyPI
(`pip install 'tilewright[nvrtc]'`). Both get `--use_fast_math`, as TVM compiles what it runs; TVM's
level of ptxas' use of registers they do not get, at which some kernels spill.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from tilewright.core.errors import TargetError
from tilewright.core.scratch import scratch_folder
from tilewright.hardware.gpus import CompilerReport

Form = Literal["cubin", "ptx"]

_TIMEOUT_S = 120.0
_PTXAS = ("-v", "--warn-on-local-memory-usage")
_FAST_MATH = "--use_fast_math"
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A cubin and the reports by the function's name; without them `reason` says why."""

    binary: bytes = b""
    reports: Mapping[str, CompilerReport] = field(default_factory=dict[str, CompilerReport])
    reason: str = ""

    @property
    def spilled_bytes(self) -> int:
        """Bytes that the kernels' threads write and read again for want of registers."""
        return sum(it.spill_store_bytes + it.spill_load_bytes for it in self.reports.values())


def compiled_source(source: str, arch: str, form: Form = "cubin") -> Compiled:
    """CUDA C++ compiled for an architecture such as `sm_90`; never raises for what is refused.

    The `binary` of form `ptx` is the text of that language, for which there are no reports. A text
    that spills, because ptxas gives registers away for one more block on a multiprocessor, is
    compiled again with one block wanted, which is kept where it spills less.
    """
    made = _compiled(source, arch, form)
    if made.spilled_bytes:
        bound = _compiled(_LAUNCH_BOUNDS.sub(r"__launch_bounds__(\1, 1)", source), arch, form)
        if not bound.reason and bound.spilled_bytes < made.spilled_bytes:
            return bound
    return made


def _compiled(source: str, arch: str, form: Form) -> Compiled:
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        return _by_nvcc(nvcc, source, arch, form)
    if (library := nvrtc()) is not None:
        return _by_nvrtc(*library, source, arch, form)
    return Compiled(reason=missing_compiler())


def missing_compiler() -> str:
    """Why CUDA C++ cannot be compiled here; empty where it can."""
    if shutil.which("nvcc") is not None or nvrtc() is not None:
        return ""
    return (
        "nvcc, of NVIDIA's CUDA toolkit, is not on the PATH, and NVRTC is not installed: "
        "pip install 'tilewright[nvrtc]'"
    )


def disassembled(binary: bytes) -> str:
    """A cubin as SASS, the GPU's machine code, by nvdisasm. Raises TargetError where that is not
    installed, or fails."""
    packaged = (it for home in _nvidia_homes() for it in sorted(home.glob("*/bin/nvdisasm")))
    nvdisasm = shutil.which("nvdisasm") or next(map(str, packaged), None)
    if nvdisasm is None:
        raise TargetError(
            "machine code of NVIDIA's GPUs (SASS) is read by nvdisasm, of the CUDA toolkit, which "
            "is neither on the PATH nor installed",
            hint="pip install nvidia-cuda-nvdisasm adds it; --ptx does not need it.",
        )
    with scratch_folder() as folder:
        cubin = folder / "kernel.cubin"
        cubin.write_bytes(binary)
        try:
            done = subprocess.run(  # noqa: S603 - NVIDIA's own tool
                [nvdisasm, "--print-code", str(cubin)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TargetError(f"nvdisasm could not be run: {error}") from None
    if done.returncode != 0:
        raise TargetError(f"nvdisasm refuses: {_complaint(done.stderr)}")
    return done.stdout


def _nvidia_homes() -> list[Path]:
    """The folders of NVIDIA's packages on PyPI."""
    package = find_spec("nvidia")
    return [Path(it) for it in (package and package.submodule_search_locations) or ()]


@cache
def nvrtc() -> tuple[Any, tuple[Path, ...]] | None:
    """NVRTC of NVIDIA's packages on PyPI, and the folders of their headers; None without them."""
    homes = _nvidia_homes()
    found = [it for home in homes for it in home.glob("*/lib/libnvrtc*.so.*")]
    loaded = [ctypes.CDLL(str(it)) for it in sorted(found) if ".alt." not in it.name]
    headers = [
        it for home in homes for it in home.glob("*/include") if (it / "cuda_fp16.h").exists()
    ]
    if not loaded or not headers:
        return None
    return loaded[-1], tuple(it for home in headers for it in (home, home / "cccl"))


def _by_nvrtc(
    library: Any, headers: tuple[Path, ...], source: str, arch: str, form: Form
) -> Compiled:
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)

    def taken(what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{what}")(program, content)
        return content.raw

    options = [
        *(f"--gpu-architecture={arch}", "-default-device", "--device-int128", "-w", _FAST_MATH),
        *(f"-I{it}" for it in headers),
        *(f"--ptxas-options={it}" for it in _PTXAS),
    ]
    given = (ctypes.c_char_p * len(options))(*(it.encode() for it in options))
    refused = library.nvrtcCompileProgram(program, len(options), given)
    said = taken("ProgramLog").rstrip(b"\0").decode()
    binary = b"" if refused else taken(form.upper()).rstrip(b"\0" if form == "ptx" else b"")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if refused:
        return Compiled(reason=f"NVRTC refuses: {_complaint(said)}")
    return Compiled(binary=binary, reports=read_reports(said))


def _by_nvcc(nvcc: str, source: str, arch: str, form: Form) -> Compiled:
    with scratch_folder() as folder:
        text, cubin = folder / "kernel.cu", folder / f"kernel.{form}"
        text.write_text(source, encoding="utf-8")
        flags = [
            f"-{form}",
            "-O3",
            f"-arch={arch}",
            _FAST_MATH,
            f"--ptxas-options={','.join(_PTXAS)}",
        ]
        try:
            done = subprocess.run(  # noqa: S603 - a compiler found on the PATH
                [nvcc, *flags, "-o", str(cubin), str(text)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Compiled(reason=f"nvcc could not be run: {error}")
        said = done.stdout + done.stderr
        if done.returncode != 0 or not cubin.exists():
            return Compiled(reason=f"nvcc refuses: {_complaint(said)}")
        return Compiled(binary=cubin.read_bytes(), reports=read_reports(said))


def read_reports(text: str) -> dict[str, CompilerReport]:
    """What `ptxas -v` printed, by the function's name."""
    reports: dict[str, CompilerReport] = {}
    parts = _ENTRY.split(text)
    for name, said in zip(parts[1::2], parts[2::2], strict=True):
        registers, stack, shared = (it.search(said) for it in (_REGISTERS, _STACK, _SHARED))
        if registers is not None:
            frame, stores, loads = (int(it) for it in stack.groups()) if stack else (0, 0, 0)
            reports[name] = CompilerReport(
                registers=int(registers[1]),
                spill_store_bytes=stores,
                spill_load_bytes=loads,
                stack_bytes=frame,
                shared_bytes=int(shared[1]) if shared else 0,
            )
    return reports


def _complaint(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "rror" in line), lines[-1] if lines else "no reason")

"""NVIDIA's compiler: CUDA source to a cubin, and what ptxas says about each function."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.core.scratch import scratch_folder
from tilewright.hardware.gpus import CompilerReport

_TIMEOUT_S = 120.0
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


def compiled_source(source: str, arch: str) -> Compiled:
    """CUDA C++ compiled for an architecture such as `sm_90`; never raises for what nvcc refuses."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return Compiled(reason="nvcc, of NVIDIA's CUDA toolkit, is not on the PATH")
    with scratch_folder() as folder:
        text, cubin = folder / "kernel.cu", folder / "kernel.cubin"
        text.write_text(source, encoding="utf-8")
        flags = ["-cubin", "-O3", f"-arch={arch}", "--ptxas-options=-v"]
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
        if registers is None:
            continue
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

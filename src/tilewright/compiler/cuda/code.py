"""CUDA code of a workload, and what can be said of it before it runs.

The way from a scheduled module to CUDA source is TVM's own (`tirx.build`), taken step by step, so
that device functions can be read; NVIDIA's compiler is asked directly, for a cubin and a report.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import dlight
from tvm.tirx.build import codegen_build, split_host_device_mods

from tilewright.compiler.cuda.launches import read_launch
from tilewright.compiler.lower.anchors import infinity
from tilewright.compiler.lower.generic import compute_all
from tilewright.compiler.lower.program import Program
from tilewright.core.errors import InternalError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.core.scratch import scratch_folder
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CompilerReport, CudaCode

_RULES = (
    dlight.gpu.Matmul,
    dlight.gpu.GEMV,
    dlight.gpu.Reduction,
    dlight.gpu.GeneralReduction,
    dlight.gpu.Fallback,
)
"""In the order in which TVM's own CUDA pipeline tries them."""


def cuda_code(workload: Workload, target_text: str, *, compiled: bool) -> CudaCode:
    """A workload in TVM's default schedule for a CUDA target (TVM's JSON).

    Where it is to be `compiled`, nvcc makes a cubin and reports registers and spills; why it could
    not is the code's `reason`.
    """
    target = tvm.target.Target(target_text)
    rule, module = _scheduled(workload, target)
    device_module, finish = _lowered(module, target)
    kernels = tuple(
        read_launch(variable.name_hint, function)
        for variable, function in device_module.functions.items()
    )
    if not compiled:
        return CudaCode(rule=rule, kernels=kernels, source="", reason="it was not compiled")
    source = str(codegen_build(finish(device_module), target).inspect_source())
    done = compiled_source(source, str(target.attrs["arch"]))
    return CudaCode(
        rule=rule,
        kernels=tuple(replace(it, report=done.reports.get(it.name)) for it in kernels),
        source=source,
        binary=done.binary,
        reason=done.reason,
    )


def _lowered(module: tvm.IRModule, target: tvm.target.Target) -> tuple[tvm.IRModule, Any]:
    """The device functions, and the passes that finish them."""
    with_host = target.with_host(tvm.target.Target("llvm"))
    passes: Any = tirx.get_default_tir_pipeline(with_host)
    before, _, finish_device = passes
    _, devices = split_host_device_mods(before(tirx.transform.BindTarget(with_host)(module)))
    (device_module,) = devices.values()
    return device_module, finish_device()


def _scheduled(workload: Workload, target: tvm.target.Target) -> tuple[str, tvm.IRModule]:
    """The name of the rule that applied, and the module it made; its function is `main`."""
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    program = Program(workload, Candidate(implementation="generic", settings=(), forms=forms))
    compute_all(program)
    tensors = [*program.tensors, program.finish()]
    function = te.create_prim_func(tensors).with_attr("target", target)
    _register_reducers()
    with target:
        for rule in _RULES:
            made: Any = rule().apply(function, target, False)
            if made is not None:
                return rule.__name__, (made[0] if isinstance(made, list) else made).mod
    raise InternalError(f"no GPU schedule rule applies to {workload.key}")


@cache
def _register_reducers() -> None:
    """Teach TVM our largest and smallest, which begin at an infinity: across threads it reduces by
    what it knows only, and its own begin at the largest finite number."""
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, sign in ((tirx.max, "-"), (tirx.min, "")):
        register(
            1,
            lambda left, right, combine=combine: [combine(left[0], right[0])],
            lambda values, sign=sign: [infinity(str(values[0].ty.dtype), sign)],
        )


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

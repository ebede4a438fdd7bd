"""CUDA code of a workload, and what can be said of it before it runs.

The way from a scheduled module to CUDA source is TVM's own (`tirx.build`), taken step by step, so
that device functions can be read; NVIDIA's compiler is asked directly, for its report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from tilewright.compiler.cuda.launches import read_launch
from tilewright.compiler.cuda.nvcc import Compiled, compiled_source
from tilewright.compiler.cuda.schedules import scheduled
from tilewright.core.gpus import CudaCode, CudaKernel
from tilewright.graph.workload import Workload


def cuda_code(workload: Workload, target_text: str, *, compiled: bool) -> CudaCode:
    """A workload in TVM's default schedule for a CUDA target (TVM's JSON).

    Where it is to be `compiled`, nvcc makes a cubin and reports registers and spills; why it could
    not is the code's `reason`.
    """
    target = tvm.target.Target(target_text)
    rule, module = scheduled(workload, target)
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
        kernels=tuple(_reported(kernel, done) for kernel in kernels),
        source=source,
        binary=done.binary,
        reason=done.reason,
    )


def _lowered(module: tvm.IRModule, target: tvm.target.Target) -> tuple[tvm.IRModule, Any]:
    """The device functions, and the passes that finish them."""
    with_host = target.with_host(tvm.target.Target("llvm"))
    passes: Any = tirx.get_default_tir_pipeline(with_host)
    before, _, finish_device = passes
    lowered = before(tirx.transform.BindTarget(with_host)(module))
    _, devices = split_host_device_mods(lowered)
    (device_module,) = devices.values()
    return device_module, finish_device()


def _reported(kernel: CudaKernel, done: Compiled) -> CudaKernel:
    return replace(kernel, report=done.reports.get(kernel.name))

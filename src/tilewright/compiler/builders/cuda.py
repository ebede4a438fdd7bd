"""Kernels for NVIDIA's GPUs: scheduled for TVM, printed as CUDA C++, compiled by NVIDIA's compilers
ahead, launched through the driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from time import perf_counter

import tvm

from tilewright.compiler.build import argument_types, kernel_hash_of, kernel_module
from tilewright.compiler.cuda.compilers import Compiled, Form, compiled_source, disassembled
from tilewright.compiler.cuda.driver import Driver
from tilewright.compiler.cuda.kernels import CudaKernel
from tilewright.compiler.cuda.launches import cuda_program
from tilewright.compiler.cuda.nvidia import open_driver
from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, TargetError
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.core.units import format_bytes
from tilewright.graph.workload import Workload
from tilewright.hardware.cards import MOST_MEMORY_BYTES, broken_limit
from tilewright.hardware.gpus import CudaProgram


@lru_cache(maxsize=64)
def program_of(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> CudaProgram:
    """A candidate's CUDA C++ and its launches."""
    module = kernel_module(workload, candidate, target, resources)
    return _program(module, target, resources)


def _program(module: tvm.IRModule, target: Target, resources: Resources) -> CudaProgram:
    return cuda_program(module, tvm.target.Target(target.tvm_target(resources)))


def _hash(module: tvm.IRModule, target: Target) -> str:
    return digest(f"{kernel_hash_of(module['main'])} {target.architecture}")


class CudaBuilder:
    """The builder `cuda`. `open_driver` gives this process's work on the GPU of a target, on as
    many multiprocessors as the resources have, and `compile` makes a cubin; they are told apart so
    that kernels can be tried without a GPU."""

    name = "cuda"

    def __init__(
        self,
        open_driver: Callable[[Target, Resources], Driver] = open_driver,
        compile: Callable[[str, str, Form], Compiled] = compiled_source,
    ) -> None:
        self.open_driver = open_driver
        self.compile = compile

    def identify(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> str:
        """The hash of the scheduled kernel, and of the architecture that it is compiled for."""
        return _hash(kernel_module(workload, candidate, target, resources), target)

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> CudaKernel:
        """Compile a candidate; the GPU is not needed for it. Raises TargetError without a compiler,
        and ModelError for tensors that no GPU's memory holds, and for a launch that it would
        refuse."""
        began = perf_counter()
        _check_memory(workload)
        module = kernel_module(workload, candidate, target, resources)
        program = _program(module, target, resources)
        compiled = self.compile(program.source, target.architecture, "cubin")
        if not compiled.binary:
            raise TargetError(f"no cubin was made: {compiled.reason}")
        for launch in program.launches:
            broken = broken_limit(launch, target.limits, compiled.reports.get(launch.kernel))
            if broken is not None:
                raise ModelError(broken)
        return CudaKernel(
            open_driver=partial(self.open_driver, target, resources),
            program=program,
            binary=compiled.binary,
            types=argument_types(module["main"]),
            kernel_hash=_hash(module, target),
            build_s=perf_counter() - began,
            workload=workload,
            candidate=candidate,
        )

    def render(
        self,
        workload: Workload,
        candidate: Candidate,
        target: Target,
        resources: Resources,
        view: str,
    ) -> str:
        """`tir`, scheduled loops; `cuda`, the text that is compiled; `ptx`; `sass` or `asm`, the
        GPU's machine code. Raises TargetError without the tools for it, and ModelError for
        tensors that no GPU's memory holds."""
        _check_memory(workload)
        if view == "tir":
            return kernel_module(workload, candidate, target, resources).script()
        source = program_of(workload, candidate, target, resources).source
        if view == "cuda":
            return source
        form = "ptx" if view == "ptx" else "cubin"
        compiled = self.compile(source, target.architecture, form)
        if not compiled.binary:
            raise TargetError(f"no {form} was made: {compiled.reason}")
        return compiled.binary.decode() if form == "ptx" else disassembled(compiled.binary)


def _check_memory(workload: Workload) -> None:
    if workload.bytes > MOST_MEMORY_BYTES:
        raise ModelError(
            f"the tensors of {workload.key} take {format_bytes(workload.bytes)}; no GPU has more "
            f"than {format_bytes(MOST_MEMORY_BYTES)} of memory"
        )


BUILDER = CudaBuilder()

"""Kernels for NVIDIA's GPUs: scheduled for TVM, printed as CUDA C++, compiled by NVIDIA's compilers
ahead, launched through the driver."""

from __future__ import annotations

from functools import lru_cache
from typing import NoReturn

import tvm

from tilewright.compiler.build import kernel_hash_of, kernel_module
from tilewright.compiler.cuda.launches import cuda_program
from tilewright.core.codec import digest
from tilewright.core.errors import TargetError
from tilewright.core.records import Candidate
from tilewright.core.targets import Resources, Target
from tilewright.graph.workload import Workload
from tilewright.hardware.gpus import CudaProgram


@lru_cache(maxsize=64)
def program_of(
    workload: Workload, candidate: Candidate, target: Target, resources: Resources
) -> CudaProgram:
    """A candidate's CUDA C++ and its launches."""
    module = kernel_module(workload, candidate, target, resources)
    return cuda_program(module, tvm.target.Target(target.tvm_target(resources)))


class _Cuda:
    name = "cuda"

    def identify(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> str:
        """The hash of the scheduled kernel, and of the architecture that it is compiled for."""
        module = kernel_module(workload, candidate, target, resources)
        return digest(f"{kernel_hash_of(module['main'])} {target.architecture}")

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> NoReturn:
        """Nothing yet."""
        raise TargetError("no CUDA driver is here")

    def render(
        self,
        workload: Workload,
        candidate: Candidate,
        target: Target,
        resources: Resources,
        view: str,
    ) -> str:
        """`tir`, scheduled loops, or `cuda`, the text that is compiled."""
        if view == "tir":
            return kernel_module(workload, candidate, target, resources).script()
        return program_of(workload, candidate, target, resources).source


BUILDER = _Cuda()

"""Kernels for CPUs: scheduled for TVM, compiled in memory by LLVM, timed in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.build import BuiltKernel, build_kernel, kernel_identity, rendered
from tilewright.compiler.builders.base import Watch
from tilewright.compiler.kernel_runs import (
    keep_kernel_running,
    repeat_kernel,
    run_kernel,
    time_kernel,
)
from tilewright.core.records import Candidate, Protocol
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Array
from tilewright.graph.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LlvmKernel:
    """A compiled kernel with what it computes."""

    built: BuiltKernel
    workload: Workload
    candidate: Candidate

    @property
    def kernel_hash(self) -> str:
        """The structural hash of its schedule, and how that is compiled."""
        return self.built.kernel_hash

    @property
    def build_s(self) -> float:
        """Seconds of lowering and compiling."""
        return self.built.build_s

    def run(self, arrays: Sequence[Array]) -> Array:
        """Its result on logical arrays."""
        return run_kernel(self.built, self.workload, self.candidate, arrays)

    def time(self, protocol: Protocol, seed: int, give_up_s: float) -> list[float]:
        """Seconds per call of each sample; constants rotate through copies."""
        return time_kernel(self.built, self.workload, protocol, seed, give_up_s)

    def repeat(self, protocol: Protocol, seed: int, seconds: float) -> int:
        """Call it for so long; how often."""
        return repeat_kernel(self.built, self.workload, protocol, seed, seconds)

    def keep_running(self, protocol: Protocol, seed: int, watch: Watch) -> int:
        """Call it while that is wanted; how often."""
        return keep_kernel_running(self.built, self.workload, protocol, seed, watch)


class _Llvm:
    name = "llvm"

    def identify(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> str:
        return kernel_identity(workload, candidate, target, resources)

    def build(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> LlvmKernel:
        return LlvmKernel(
            built=build_kernel(workload, candidate, target, resources),
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
        """`tir`, the scheduled loops, or `asm`, machine code."""
        return rendered(workload, candidate, target, resources, view)


BUILDER = _Llvm()

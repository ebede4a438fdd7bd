"""Kernels for CPUs: scheduled for TVM, compiled in memory by LLVM, timed in this process."""

from __future__ import annotations

from tilewright.compiler.build import kernel_identity, rendered
from tilewright.compiler.kernel_runs import build_kernel


class _Llvm:
    name = "llvm"
    identify = staticmethod(kernel_identity)
    build = staticmethod(build_kernel)
    render = staticmethod(rendered)


BUILDER = _Llvm()

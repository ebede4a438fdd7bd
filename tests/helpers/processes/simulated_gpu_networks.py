"""The process of networks on a simulated GPU: kernels are executed on the CPU, and not compiled for
a GPU."""

from __future__ import annotations

from tilewright.compiler.cuda.compilers import Compiled
from tilewright.core import child
from tilewright.measure.cuda_network_worker import Gpu
from tilewright.testing.simulated_driver import SimulatedDriver


def not_compiled(_source: str, _arch: str) -> Compiled:
    """In place of a cubin, which nobody executes here."""
    return Compiled(binary=b"a cubin")


if __name__ == "__main__":
    child.serve(Gpu(lambda _target: SimulatedDriver(), not_compiled).handlers)

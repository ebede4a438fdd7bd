"""The process of networks on a simulated GPU: kernels are executed on the CPU, and not compiled for
a GPU. An input full of one number is taken for one with which a kernel reads where nothing is, one
full of another for one with which a kernel does not end."""

from __future__ import annotations

import time

import numpy as np

from tilewright.compiler.cuda.compilers import Compiled
from tilewright.compiler.cuda.driver import Memory, StickyFault
from tilewright.core import child
from tilewright.graph.network import Array
from tilewright.measure.cuda_network_worker import Gpu
from tilewright.testing.simulated_driver import SimulatedDriver

SPOILS, HANGS = 12345.0, 54321.0


def not_compiled(_source: str, _arch: str) -> Compiled:
    """In place of a cubin, which nobody executes here."""
    return Compiled(binary=b"a cubin")


class _Spoilt(SimulatedDriver):
    def upload(self, memory: Memory, array: Array) -> None:
        if array.dtype == np.float32 and np.all(array == SPOILS):
            raise StickyFault("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access")
        if array.dtype == np.float32 and np.all(array == HANGS):
            time.sleep(60)
        super().upload(memory, array)


if __name__ == "__main__":
    child.serve(Gpu(lambda _target: _Spoilt(), not_compiled).handlers)

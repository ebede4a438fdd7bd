"""The worker process of kernels, with a driver that executes them on the CPU.

The file `fault` in the folder that the environment names says what goes wrong once, with the first
kernel that is timed: `sticky`, `memory` or `hang`.
"""

from __future__ import annotations

import os
import runpy
import time
from pathlib import Path

from tilewright.compiler.builders.cuda import BUILDER
from tilewright.compiler.cuda.compilers import Compiled
from tilewright.compiler.cuda.driver import Driver, OutOfDeviceMemory, StickyFault
from tilewright.core.targets import Resources, Target
from tilewright.testing.simulated_driver import H100, SimulatedDriver

FOLDER, FAULT = "TILEWRIGHT_TEST_FAULTS", "fault"
_FAULTS = {
    "sticky": StickyFault("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access (cuGraphLaunch)"),
    "memory": OutOfDeviceMemory("the GPU's memory does not suffice: 1 MiB of 80 GiB are free"),
}


class _Faulty(SimulatedDriver):
    spoilt = False
    """Since a fault that sticks: after it, a process gets no other answer."""

    def replay(self, graph: object) -> None:
        if self.spoilt:
            raise _FAULTS["sticky"]
        path = Path(os.environ.get(FOLDER, "/nowhere")) / FAULT
        if path.exists():
            fault = path.read_text(encoding="utf-8")
            path.unlink()
            if fault == "hang":
                time.sleep(60)
            _Faulty.spoilt = fault == "sticky"
            raise _FAULTS[fault]
        super().replay(graph)


def _opened(_target: Target, resources: Resources) -> Driver:
    """Launches take the longer the fewer multiprocessors they get."""
    return _Faulty(launch_s=1e-5 * H100.multiprocessors / resources.cores)


def _cubin(_source: str, _arch: str, _form: str) -> Compiled:
    return Compiled(binary=b"a cubin")


if __name__ == "__main__":
    BUILDER.open_driver, BUILDER.compile = _opened, _cubin
    runpy.run_module("tilewright.measure.kernel_worker", run_name="__main__", alter_sys=False)

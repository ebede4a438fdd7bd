"""The process of parts of plans on a simulated GPU: kernels are executed on the CPU.

The file `fault` in the folder that the environment names says what becomes of the GPU when a
tensor of so many numbers is copied there: with `dies 5` it gives no answer any more, and no process
gets it again while the file is there; `fails 5` or `hangs 5` happens to one process, which takes
the file away.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from tilewright.compiler.cuda.driver import Driver, Memory, StickyFault
from tilewright.core import child
from tilewright.core.errors import TargetError
from tilewright.core.targets import Target
from tilewright.graph.network import Array
from tilewright.serving.gpu_worker import PartsOnGpu
from tilewright.testing.simulated_driver import H100, SimulatedDriver

FOLDER, FAULT = "TILEWRIGHT_TEST_PARTS_ON_A_GPU", "fault"
DIES, FAILS, HANGS = "dies", "fails", "hangs"


def _fault() -> tuple[Path, str, int]:
    path = Path(os.environ.get(FOLDER, "/nowhere")) / FAULT
    what, count = path.read_text(encoding="utf-8").split() if path.exists() else ("", "0")
    return path, what, int(count)


class _Mortal(SimulatedDriver):
    def upload(self, memory: Memory, array: Array) -> None:
        path, fault, count = _fault()
        if fault and count == array.size:
            if fault != DIES:
                path.unlink()
            if fault == HANGS:
                time.sleep(60)
            raise StickyFault("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access")
        super().upload(memory, array)


def _opened(target: Target) -> Driver:
    """Of the architecture of the target; which of several cards this process sees is noted."""
    path, fault, _ = _fault()
    if fault == DIES:
        raise TargetError("NVIDIA's driver is here, but it sees no GPU")
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen and path.parent.exists():
        (path.parent / f"saw {seen}").touch()
    major, minor = divmod(int(target.architecture.removeprefix("sm_")), 10)
    return _Mortal(replace(H100, capability=(major, minor)))


if __name__ == "__main__":
    child.serve(PartsOnGpu(_opened).handlers)

"""The child process of parts on a simulated GPU, whose kernels are executed on the CPU."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core import child
from tilewright.core.targets import Target
from tilewright.serving.gpu_worker import PartsOnGpu
from tilewright.testing.simulated_driver import H100, SimulatedDriver


def opened(target: Target) -> SimulatedDriver:
    """A card of the target's architecture."""
    digits = target.architecture.removeprefix("sm_").rstrip("a")
    return SimulatedDriver(replace(H100, capability=(int(digits[:-1]), int(digits[-1]))))


if __name__ == "__main__":
    child.serve(PartsOnGpu(opened).handlers)

"""A H100 in this machine whose kernels are executed on the CPU, in the processes that measure and
serve as well."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from helpers.processes import simulated_gpu, simulated_gpu_networks, simulated_gpu_parts
from tilewright.compiler.cuda import compilers, nvidia
from tilewright.hardware.cards import Card
from tilewright.measure import cuda_networks, kernels
from tilewright.serving import posts
from tilewright.testing.simulated_driver import H100


@contextmanager
def simulated_card(*more: Card) -> Generator[None]:
    """The target `cuda` is that card; others may be there, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvidia, "find_cards", lambda *_: (H100, *more))
        patch.setattr(compilers, "missing_compiler", lambda: "")
        patch.setattr(kernels, "WORKER", simulated_gpu.__name__)
        patch.setattr(cuda_networks, "WORKER", simulated_gpu_networks.__name__)
        patch.setattr(posts, "GPU_WORKER", simulated_gpu_parts.__name__)
        yield

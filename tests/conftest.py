"""What holds for all tests: the garbage collector leaves alone what lives as long as they do,
workers are forks of a process that has imported everything, and no drawn example has a deadline."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from helpers.processes.warm_workers import warm_workers

MOST_WORKERS = 4
"""Of pytest; each takes 1 to 1.5 GB."""

settings.register_profile(
    "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

gc.disable()  # modules and nine thousand tests: none of it becomes garbage while it is collected


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a fifth of the time tests wait for other processes."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS)


def pytest_collection_finish() -> None:
    """From here on it looks at what tests make, and at nothing that was there before."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def workers_start_warm() -> Iterator[None]:
    """The second that a worker's imports take is left out."""
    with warm_workers():
        yield

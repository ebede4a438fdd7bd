"""What holds for all tests: the garbage collector leaves alone what lives as long as they do,
workers are forks of a process that has imported everything, and no drawn example has a deadline."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from helpers.processes.warm_workers import warm_workers

settings.register_profile(
    "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

gc.disable()  # modules and nine thousand tests: none of it becomes garbage while it is collected


def pytest_collection_finish() -> None:
    """From here on it looks at what tests make, and at nothing that was there before."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def workers_start_warm() -> Iterator[None]:
    """The second that a worker's imports take is left out."""
    with warm_workers():
        yield

"""Instances of servers are started by threads of theirs, and a server of warm workers has to be
started by the main thread: so before them."""

from __future__ import annotations

import pytest

from helpers.commands.warm_commands import server


@pytest.fixture(autouse=True, scope="session")
def instances_start_warm(workers_start_warm: None) -> None:
    """They are forks, instead of processes that import numpy and the package each time."""
    server()

"""Which cores a test leaves to those that come after it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from helpers.commands.command_line import ALL


@pytest.fixture(autouse=True)
def cores_given_back() -> Iterator[None]:
    """TVM binds the thread that calls a network of one thread to one core, and a process that a
    later test starts would inherit that."""
    yield
    os.sched_setaffinity(0, ALL)

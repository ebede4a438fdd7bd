"""Which cores a test and the commands it starts may use, and which cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from helpers.commands.command_line import ALL, keep_to, on_all_cores
from helpers.commands.made_once import made_once
from tilewright.hardware.probe import allotted_cpus


def own_share() -> set[int]:
    """The cores of this test process: all, or its part of them where several run side by side.

    Kernels of several threads on the cores of another test's wait for each other most of the time.
    """
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(name.removeprefix("gw")) if name else 0
    return set(allotted_cpus(affinity=ALL)[number::count]) or ALL


@pytest.fixture(autouse=True, scope="module")
def own_cores() -> Iterator[None]:
    """Tests keep to the cores of their process."""
    keep_to(own_share())
    yield
    keep_to(ALL)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this test process: what others keep in theirs changes no answer meanwhile. All
    share what is named by all that it was made of."""
    own = tmp_path_factory.mktemp("cache")
    for name in ("models", "charts", "cuda_runtime"):
        (own / name).symlink_to(made_once(tmp_path_factory, f"shared-{name}", lambda _: None))
    return own


@pytest.fixture(autouse=True, scope="module")
def own_cache(cache: Path) -> Iterator[None]:
    """Commands keep predictors there."""
    with mock.patch.dict(os.environ, {"TILEWRIGHT_CACHE": str(cache)}):
        yield


@pytest.fixture
def all_cores(own_cores: None) -> Iterator[None]:
    """For a test of kernels with as many threads as the machine has cores."""
    with on_all_cores():
        yield

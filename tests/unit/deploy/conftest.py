from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Noise is kept there, and not taken from what another run of the tests kept."""
    folder = tmp_path_factory.mktemp("cache")
    with mock.patch.dict(os.environ, {"TILEWRIGHT_CACHE": str(folder)}):
        yield

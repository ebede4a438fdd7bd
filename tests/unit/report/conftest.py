"""What every test of the room needs."""

from __future__ import annotations

import pytest

from tilewright.report import displays


@pytest.fixture(autouse=True)
def installed() -> None:
    """Results show themselves as they do in a session, whichever test runs first."""
    displays.install()

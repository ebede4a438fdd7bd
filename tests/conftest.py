"""The garbage collector leaves alone what lives as long as the tests do."""

from __future__ import annotations

import gc

gc.disable()  # modules and nine thousand tests: none of it becomes garbage while it is collected


def pytest_collection_finish() -> None:
    """From here on it looks at what tests make, and at nothing that was there before."""
    gc.freeze()
    gc.enable()

"""A made-up measurer as `open_measurer` gives one."""

from __future__ import annotations

from typing import Self

from helpers.fakes.measuring import FakeMeasurer


class Opened(FakeMeasurer):
    """A measurer as `open_measurer` gives it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def start(self) -> None:
        pass

    def peaks(self) -> dict[str, float]:
        return {"flop_per_s": 1e11, "bytes_per_s": 1e10, "cache_bytes_per_s": 1e11}

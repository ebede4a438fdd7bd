"""Protocols that let higher layers take a measurer or a store as an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol as TypingProtocol

from tilewright.core.records import (
    Failure,
    Measurement,
    Outcome,
    PlacementKey,
    Run,
    ShippedPlan,
)


class MeasurementStore(TypingProtocol):
    """Where outcomes are kept. Every write is durable before the call returns."""

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Keep outcomes; adding the same one twice keeps both samples."""
        ...

    def outcomes(self, workload_key: str, placement: PlacementKey) -> list[Outcome]:
        """Everything known about a workload at a device class and resources, oldest first."""
        ...

    def measurements(self, workload_key: str, placement: PlacementKey) -> list[Measurement]:
        """The successes only."""
        ...

    def failures(self, workload_key: str, placement: PlacementKey) -> list[Failure]:
        """The failures only."""
        ...

    def begin_run(self, run: Run) -> Run:
        """Open a run row and return it with its id."""
        ...

    def update_run(self, run: Run) -> None:
        """Record what a run has spent so far and its state."""
        ...

    def runs(self, network_key: str, placement: PlacementKey) -> list[Run]:
        """All runs on this network at a device class and resources, oldest first."""
        ...

    def ship(self, shipped: ShippedPlan) -> None:
        """Keep the plan that shipped."""
        ...

    def shipped(self, network_key: str, placement: PlacementKey) -> ShippedPlan | None:
        """What shipped last for a network at a device class and resources."""
        ...

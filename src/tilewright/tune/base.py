"""The protocol between a tuner and the loop: ask for candidates, tell their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright.core.records import Candidate, Outcome


class Tuner(Protocol):
    """Searches the settings of one task.

    A tuner never proposes a candidate it was told about or has proposed before. It measures
    nothing itself; whoever drives it may tell it outcomes from the database first.
    """

    def ask(self, count: int) -> list[Candidate]:
        """Up to `count` candidates worth measuring next; empty when nothing is left."""
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Learn outcomes, of its own proposals or of others'."""
        ...

"""What a check found: of a kernel against numpy, of a network against a reference."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.records import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCheck:
    """`error` is relative to sum |w||x|; None when there is no reference in numpy, or when the
    memory did not suffice for a check."""

    error: float | None
    bound: float
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCheck:
    """The network's outputs against the reference's: largest absolute error, the largest error
    relative to the largest value of its output, and the name of that output; empty where all are
    the same."""

    max_abs_error: float
    max_rel_error: float
    output: str = ""

"""How much kernels on cores of their own slow each other down by what they share: the last-level
cache and the bandwidth of memory.

    slowdown(own, others, scale) = 1 + own × others / scale²        all in bytes per second

A kernel that streams nothing is not slowed down, nor does it slow others down.
"""

from __future__ import annotations

from math import inf

from tilewright.core.targets import Target
from tilewright.cost.demand import Column, Numbers
from tilewright.cost.floors import Work

CONTENTION_BYTES_PER_S = 3e11
"""Two kernels that stream so much each would take twice their time alone: the constant that fits
best to 163 pairs on two cores of a Xeon, which stream a tenth of it at most and hardly slow each
other down (docs/concepts/neighbours.md)."""


def streamed_bytes(work: Work, target: Target, cores: int) -> float:
    """Bytes of a call that come from beyond the second-level caches of its cores: weights, which
    other kernels have pushed out, and what of the data does not fit."""
    beyond = float(work.cache_bytes) - cores * target.cache_bytes(2)
    return float(work.memory_bytes) + max(0.0, beyond)


def slowdown(own: Numbers, others: Numbers, scale: float) -> Column | float:
    """How many times as long kernels take that stream `own` bytes per second alone, beside others
    that stream `others` together."""
    return 1.0 + own * others / scale**2


def bearable(own: float, each: float, scale: float, more: float) -> float:
    """How many neighbours that stream `each` a kernel bears until it takes `more` longer than
    alone, as a part of that; infinite where they cost nothing."""
    cost = own * each / scale**2
    return more / cost if cost else inf

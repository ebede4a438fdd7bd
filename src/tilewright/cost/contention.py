"""How much kernels on cores of their own slow each other down by what they share: the last-level
cache and the bandwidth of memory.

    slowdown(own, others, scale) = 1 + own × others / scale²        all in bytes per second

A kernel that streams nothing is not slowed down, nor does it slow others down. The scale is a fact
of each machine: `measured_scale` is what two kernels beside each other tell of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, inf, log, sqrt
from statistics import fmean

from tilewright.core.targets import Target
from tilewright.cost.demand import Column, Numbers
from tilewright.cost.floors import Work

CONTENTION = "contention_bytes_per_s"
"""What databases call the scale of a machine."""
CONTENTION_CORES = 1
"""On how many cores each kernel runs by which it is measured, and under which it is kept."""
USUAL_CONTENTION_BYTES_PER_S = 1e11
"""The scale of machines on which nobody measured it: between the 37 GB/s of two cores of an EPYC
and the 300 GB/s of two cores of a Xeon (docs/concepts/neighbours.md)."""
_LEAST_SLOWDOWN = 1.01
"""What is slowed down by less is told from nothing at all by no clock."""
_LAST_LEVEL = 3
_KEPT = 0.5
"""The part of its share of the last-level cache that a kernel keeps beside others: chosen by
pairs on an EPYC (docs/concepts/neighbours.md), whose cores have 16 MiB of it each, keep 8 to 10."""


def kept_bytes(target: Target, cores: int) -> float:
    """Bytes of data that lie in the caches of so many cores from call to call, whatever runs on the
    others: their second-level caches, and half their share of the last level."""
    last = target.memory[_LAST_LEVEL - 1 : _LAST_LEVEL]
    share = sum(level.bytes / level.cores for level in last)
    return cores * (target.cache_bytes(2) + _KEPT * share)


def streamed_bytes(work: Work, target: Target, cores: int) -> float:
    """Bytes of a call that come from memory where other kernels run beside it: weights, which these
    have pushed out of the caches, and what of the data its cores do not keep."""
    return float(work.memory_bytes) + max(0.0, float(work.cache_bytes) - kept_bytes(target, cores))


def slowdown(own: Numbers, others: Numbers, scale: float) -> Column | float:
    """How many times as long kernels take that stream `own` bytes per second alone, beside others
    that stream `others` together."""
    return 1.0 + own * others / scale**2


def measured_scale(seen: Iterable[tuple[float, float, float]]) -> float:
    """The scale by kernels that were timed alone and beside another: the bytes that either streams
    per second alone, and how many times as long the first took. The geometric mean of what each
    says; one that was not slowed down says that the scale is ten times what both stream."""
    return exp(
        fmean(
            log(sqrt(own * other / (max(slower, _LEAST_SLOWDOWN) - 1.0)))
            for own, other, slower in seen
        )
    )


def bearable(own: float, each: float, scale: float, more: float) -> float:
    """How many neighbours that stream `each` a kernel bears until it takes `more` longer than
    alone, as a part of that; infinite where they cost nothing."""
    cost = own * each / scale**2
    return more / cost if cost else inf

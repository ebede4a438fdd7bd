"""What estimates assume of a CPU's arithmetic, in one place."""

from __future__ import annotations

from tilewright.core.targets import Resources, Target

CLOCK_HZ = 2.7e9
"""Of every core. Estimates rank the candidates of a task; one clock for all of them hardly changes
their order, and what a machine really reaches is measured (`compiler/peaks.py`)."""

CYCLE_S = 1 / CLOCK_HZ


def peak_flop_per_s(target: Target, resources: Resources, computed_in: str) -> float:
    """Multiplications and additions of all threads, in a type that kernels compute in.

    That is plain vector arithmetic: no kernel computes in a type that needs another unit.
    """
    return resources.threads * target.operations_per_cycle(computed_in) * CLOCK_HZ

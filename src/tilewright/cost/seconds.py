"""A demand in seconds: the estimate that ranks the candidates of a task."""

from __future__ import annotations

import numpy as np

from tilewright.core.targets import Resources
from tilewright.cost.demand import Column, Demand, Numbers
from tilewright.cost.rates import LAUNCH_S, LEVELS


def balance(pieces: Numbers, resources: Resources) -> Column:
    """Share of the threads that equal pieces of work keep busy."""
    count = np.maximum(1.0, np.asarray(pieces, np.float64))
    return count / (np.ceil(count / resources.threads) * resources.threads)


def seconds(demand: Demand, resources: Resources) -> Column:
    """A rough time of one call: good for an order, not for a promise.

    Arithmetic and traffic follow each other but for what is `hidden`; threads without a piece of
    work wait for the others.
    """
    busy = resources.threads * (1.0 if demand.even else balance(demand.pieces, resources))
    cycles = demand.operations / np.asarray(demand.per_cycle) + demand.cycles
    computing_s = cycles / (demand.clock_hz * busy)
    alone_s = sum(moved / LEVELS[level] for level, moved in demand.traffic.items())
    moving_s = alone_s / (busy if demand.own_traffic else resources.threads)
    spared_s = demand.hidden * np.minimum(computing_s, moving_s)
    return computing_s + moving_s - spared_s + demand.launches * LAUNCH_S

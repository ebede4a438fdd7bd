"""Comparing tuners on stored sweeps: regret against the number of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from tilewright.core.records import Measurement
from tilewright.core.results import TunerStudyRow
from tilewright.kernels.search_space import Floats
from tilewright.search.sweeps.sweep import Sweep
from tilewright.search.tuners.base import TunerFactory

BATCH = 8
SHARES = (0.01, 0.02, 0.05, 0.1)


def regret_curve(factory: TunerFactory, sweep: Sweep, *, seed: int, measurements: int) -> Floats:
    """Regret after 1, 2, … measurements of one tuner with one seed.

    The choice after each is the setting that looked fastest so far; before any has a time, regret
    is infinite. A tuner that stops early keeps its choice.
    """
    tuner = factory(sweep.task(seed))
    regrets: list[float] = []
    least_s = np.inf
    while len(regrets) < measurements:
        candidates = tuner.ask(min(BATCH, measurements - len(regrets)))
        if not candidates:
            break
        outcomes = [sweep.outcome(candidate) for candidate in candidates]
        for outcome in outcomes:
            if isinstance(outcome, Measurement):
                least_s = min(least_s, outcome.latency_s)
            regrets.append(least_s / sweep.best_s - 1.0)
        tuner.tell(outcomes)
    last = regrets[-1] if regrets else np.inf
    return np.array([*regrets, *([last] * (measurements - len(regrets)))])


def compare_tuners(
    named: Sequence[tuple[str, TunerFactory]],
    sweeps: Sequence[Sweep],
    *,
    seeds: int,
    shares: Sequence[float] = SHARES,
) -> list[TunerStudyRow]:
    """Regret of every tuner on every sweep at each share, over `seeds` seeds."""
    rows: list[TunerStudyRow] = []
    for sweep in sweeps:
        points = [max(1, ceil(share * sweep.size)) for share in shares]
        for name, factory in named:
            curves = [
                regret_curve(factory, sweep, seed=seed, measurements=max(points))
                for seed in range(seeds)
            ]
            for share, point in zip(shares, points, strict=True):
                reached = [curve[point - 1] for curve in curves]
                rows.append(
                    TunerStudyRow(
                        tuner=name,
                        sweep=sweep.name,
                        measured_share=share,
                        regret_median=float(np.median(reached)),
                        regret_p90=float(np.percentile(reached, 90)),
                    )
                )
    return rows

"""Comparing tuners on stored sweeps: regret against the number of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from tilewright.core.records import Measurement
from tilewright.tune.base import TunerFactory
from tilewright.tune.search import Floats
from tilewright.tune.sweep import Sweep

BATCH = 8
SHARES = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretRow:
    """Regret of one tuner on one sweep after measuring a share of the space.

    Regret is (believed time of the tuner's choice) / (least believed time) - 1, over the seeds.
    """

    tuner: str
    sweep: str
    measured_share: float
    regret_median: float
    regret_p90: float


def regret_curve(factory: TunerFactory, sweep: Sweep, *, seed: int, measurements: int) -> Floats:
    """Regret after 1, 2, … measurements of one tuner with one seed.

    The choice after each is the setting that looked fastest so far; before any has a time, regret
    is infinite. A tuner that stops early keeps its choice.
    """
    tuner = factory(sweep.task(seed))
    regrets: list[float] = []
    chosen: tuple[float, float] = (np.inf, np.inf)
    while len(regrets) < measurements:
        candidates = tuner.ask(min(BATCH, measurements - len(regrets)))
        if not candidates:
            break
        outcomes = [sweep.outcome(candidate) for candidate in candidates]
        for outcome in outcomes:
            if isinstance(outcome, Measurement):
                number = sweep.space.number(outcome.candidate)
                assert number is not None
                chosen = min(chosen, (outcome.latency_s, sweep.worth_s(number)))
            regrets.append(chosen[1] / sweep.best_s - 1.0)
        tuner.tell(outcomes)
    last = regrets[-1] if regrets else np.inf
    return np.array([*regrets, *([last] * (measurements - len(regrets)))])


def compare_tuners(
    named: Sequence[tuple[str, TunerFactory]],
    sweeps: Sequence[Sweep],
    *,
    seeds: int,
    shares: Sequence[float] = SHARES,
) -> list[RegretRow]:
    """Regret of every tuner on every sweep at each share, over `seeds` seeds."""
    rows: list[RegretRow] = []
    for sweep in sweeps:
        points = [max(1, ceil(share * sweep.size)) for share in shares]
        for name, factory in named:
            curves = np.stack(
                [
                    regret_curve(factory, sweep, seed=seed, measurements=max(points))
                    for seed in range(seeds)
                ]
            )
            for share, point in zip(shares, points, strict=True):
                reached = curves[:, point - 1]
                rows.append(
                    RegretRow(
                        tuner=name,
                        sweep=sweep.name,
                        measured_share=share,
                        regret_median=float(np.median(reached)),
                        regret_p90=float(np.percentile(reached, 90)),
                    )
                )
    return rows

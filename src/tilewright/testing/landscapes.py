"""Made-up tasks whose times are known: spaces with a formula instead of hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate, Failure, Measurement, Outcome, Protocol, Settings
from tilewright.core.targets import threads_alone
from tilewright.kernels.knobs import Knob, choice, split
from tilewright.kernels.search_space import Filter, KnobSpace, Part, SearchSpace, each
from tilewright.search.tuners.base import Tuner, TunerFactory, TuningTask

FORMS = (PLAIN, PLAIN)
Times = Callable[[Settings], float | None]


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """A space, and the seconds of each setting by a formula; None there is a failure."""

    space: SearchSpace
    times: Times

    def outcome(self, candidate: Candidate) -> Outcome:
        """What measuring this candidate gives."""
        seconds = self.times(dict(candidate.settings))
        if seconds is None:
            return failed(candidate)
        return measured(candidate, seconds)

    @cached_property
    def best_s(self) -> float:
        """The least time; only for spaces small enough to list."""
        assert self.space.listed is not None
        every = [self.times(dict(self.space.candidate(int(n)).settings)) for n in self.space.listed]
        return min(seconds for seconds in every if seconds is not None)

    def search(self, tuner: Tuner, measurements: int, *, batch: int = 8) -> list[Outcome]:
        """The outcomes of a tuner's proposals, told to it batch by batch."""
        outcomes: list[Outcome] = []
        while len(outcomes) < measurements:
            candidates = tuner.ask(min(batch, measurements - len(outcomes)))
            if not candidates:
                break
            new = [self.outcome(candidate) for candidate in candidates]
            tuner.tell(new)
            outcomes += new
        return outcomes

    def regret(self, factory: TunerFactory, measurements: int, *, seed: int = 0) -> float:
        """best time found / best time there is - 1; infinite when nothing was found."""
        found = self.search(factory(TuningTask(space=self.space, seed=seed)), measurements)
        times = [outcome.latency_s for outcome in found if isinstance(outcome, Measurement)]
        return min(times, default=np.inf) / self.best_s - 1.0


def measured(candidate: Candidate, *samples_s: float) -> Measurement:
    """A measurement of a candidate with these samples."""
    return Measurement(
        workload_key="landscape",
        candidate=candidate,
        device_class="landscape",
        resources=threads_alone(1),
        protocol=Protocol(),
        kernel_hash="",
        samples_s=samples_s,
        build_s=0.0,
    )


def failed(candidate: Candidate) -> Failure:
    """A failure of a candidate."""
    return Failure(
        workload_key="landscape",
        candidate=candidate,
        device_class="landscape",
        resources=threads_alone(1),
        kind="build",
        message="the landscape has no time here",
    )


def part(
    name: str,
    knobs: Sequence[Knob],
    *,
    filters: Sequence[Filter] = (),
    estimate: Callable[[Settings], float] | None = None,
) -> Part:
    """One made-up implementation; `estimate` tells a rough time of a setting."""
    alone = estimate
    return Part(
        name=name,
        forms=FORMS,
        knobs=KnobSpace(knobs=tuple(knobs), accepts=each(*filters)),
        estimate_s=None if alone is None else lambda s: np.array([alone(one) for one in s]),
    )


def smooth(*, estimated: bool = False) -> Landscape:
    """2,412 valid settings of 2,520 around one valley whose knobs interact.

    The estimates, where wanted, have the right tendency and another optimum.
    """
    knobs = [
        split("rows", 48),
        split("columns", 64, policy="power2"),
        choice("unroll", (False, True)),
        choice("order", ("outer", "inner", "mixed")),
        choice("depth", (1, 2, 3, 4, 6, 8)),
    ]

    def times(s: Settings) -> float:
        rows, columns = np.log2(int(s["rows"])), np.log2(int(s["columns"]))
        away = (rows - 3.0) ** 2 / 4 + (columns - 4.0) ** 2 / 5 + (int(s["depth"]) - 3) ** 2 / 12
        away += 0.1 * abs(rows - 3.0) * abs(columns - 4.0)
        away += {"outer": 0.4, "inner": 0.0, "mixed": 0.15}[str(s["order"])]
        return 1e-4 * float(1.0 + away + (0.0 if s["unroll"] else 0.25))

    def estimate(s: Settings) -> float:
        rows, columns = np.log2(int(s["rows"])), np.log2(int(s["columns"]))
        return 1e-4 * float(1.0 + abs(rows - 2.0) / 2 + abs(columns - 5.0) / 2)

    fits: Filter = lambda s: int(s["rows"]) * int(s["columns"]) <= 1024  # noqa: E731
    made = part("made_up", knobs, filters=(fits,), estimate=estimate if estimated else None)
    return Landscape(space=SearchSpace([made]), times=times)

"""The protocol between a tuner and whoever drives it, and what a tuner is made from.

A tuner is one file: it asks for candidates and is told their outcomes. It measures nothing. The
loop, a stored sweep and a test drive it alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Measurement, Outcome, Placement
from tilewright.graph.workload import Workload
from tilewright.kernels.search_space import Floats, Numbers, SearchSpace


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


Featurizer = Callable[[str, Sequence[Candidate]], Floats]
"""Features of lowered kernels, which need a compiler, by kind (`itervar`, `curve`, `store`): a row
of a fixed width per candidate, rows of nan for kernels that do not lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorTrials:
    """What was measured on a similar task: features shared between tasks, and times.

    `features` has the columns of `SearchSpace.features` of the space they are for; `relative` is
    time / best time of that task; `estimated` the estimates in the same way, None without any.
    """

    features: Floats
    relative: Floats
    estimated: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class TuningTask:
    """What a tuner is made from.

    `workload`, `forms` and `placement` are absent when a stored sweep is replayed, `featurizer`
    where nothing can be lowered. `prior_trials` are those of similar tasks. `guesses` are
    candidates to try first, a predictor's best guesses say.
    """

    space: SearchSpace
    seed: int = 0
    workload: Workload | None = None
    forms: tuple[Form, ...] = ()
    placement: Placement | None = None
    featurizer: Featurizer | None = None
    prior_trials: tuple[PriorTrials, ...] = ()
    guesses: tuple[Candidate, ...] = ()


TunerFactory = Callable[[TuningTask], Tuner]


@dataclass(slots=True)
class History:
    """What a tuner was told of its space, by number.

    `seconds` are the measured medians, the least where there are several; `failed` numbers gave no
    time; `seen` holds everything proposed or told.
    """

    seconds: dict[int, float] = field(default_factory=dict[int, float])
    failed: set[int] = field(default_factory=set[int])
    seen: set[int] = field(default_factory=set[int])

    def arrays(self) -> tuple[Numbers, Floats]:
        """Measured numbers and their seconds, in the order in which they were told."""
        return np.array([*self.seconds], dtype=np.int64), np.array([*self.seconds.values()])

    def fastest(self) -> list[int]:
        """Measured numbers, those with the least time first."""
        return sorted(self.seconds, key=lambda number: self.seconds[number])

    def best(self) -> int | None:
        """The number with the least time."""
        return min(self.seconds, key=lambda number: self.seconds[number], default=None)

    def fresh(self, numbers: Iterable[int]) -> list[int]:
        """Those of some numbers that were not seen, each once, in their order."""
        return [number for number in dict.fromkeys(numbers) if number not in self.seen]


class NumberTuner(ABC):
    """A tuner that thinks in numbers: a subclass gives `propose`, the rest is kept here.

    Subclasses may use `space`, `known` and `rng`.
    """

    def __init__(self, task: TuningTask) -> None:
        self.task = task
        self.space = task.space
        self.known = History()
        self.rng = np.random.default_rng(task.seed)

    @abstractmethod
    def propose(self, count: int) -> list[int]:
        """Up to `count` valid numbers; those seen or repeated are dropped by `ask`."""

    def ask(self, count: int) -> list[Candidate]:
        """Guesses first, then what `propose` gives."""
        numbers = (self.space.number(guess) for guess in self.task.guesses)
        fresh = self.known.fresh(number for number in numbers if number is not None)
        chosen = [number for number in fresh if self.space.valid(number)]
        if len(chosen) < count:
            chosen = self.known.fresh([*chosen, *self.propose(count)])
        self.known.seen.update(chosen[:count])
        return [self.space.candidate(number) for number in chosen[:count]]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Take measurements and failures; candidates of other spaces are ignored."""
        for outcome in outcomes:
            number = self.space.number(outcome.candidate)
            if number is None:
                continue
            self.known.seen.add(number)
            if isinstance(outcome, Measurement):
                seconds = outcome.latency_s
                self.known.seconds[number] = min(seconds, self.known.seconds.get(number, seconds))
            else:
                self.known.failed.add(number)

    def unseen(self, count: int) -> list[int]:
        """Up to `count` numbers drawn evenly from those not seen."""
        listed = self.space.listed
        if listed is None:
            drawn = self.space.sample(self.rng, count + len(self.known.seen))
            return [number for number in drawn if number not in self.known.seen][:count]
        left = np.array(self.known.fresh(listed.tolist()), dtype=np.int64)
        return self.rng.choice(left, size=min(count, len(left)), replace=False).tolist()


class LateTuner:
    """Makes its tuner when it is first asked, so that it starts from all that is known by then."""

    def __init__(self, make: Callable[[], Tuner]) -> None:
        self._make = make
        self._tuner: Tuner | None = None
        self._told: list[Outcome] = []

    def ask(self, count: int) -> list[Candidate]:
        """Ask the tuner, made now if need be."""
        if self._tuner is None:
            self._tuner = self._make()
            self._tuner.tell(self._told)
        return self._tuner.ask(count)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the tuner, or keep the outcomes until it is made."""
        if self._tuner is None:
            self._told += outcomes
        else:
            self._tuner.tell(outcomes)

    @property
    def problem(self) -> str:
        """Why the tuner does not search as its name promises, in words; empty where it does."""
        return str(getattr(self._tuner, "problem", "") or "")

    def close(self) -> None:
        """Close a tuner that has something to close, a process of its own say."""
        close = getattr(self._tuner, "close", None)
        if close is not None:
            close()

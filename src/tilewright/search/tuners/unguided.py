"""Tuners that look at no outcomes: what every other tuner has to beat."""

from __future__ import annotations

from itertools import islice

from tilewright.search.tuners.base import NumberTuner, TuningTask


class RandomTuner(NumberTuner):
    """Draws evenly from the settings not seen."""

    def propose(self, count: int) -> list[int]:
        """Numbers drawn evenly."""
        return self.unseen(count)


class GridTuner(NumberTuner):
    """All settings in the order of their numbers, the first knob running fastest: the next valid
    ones are found as they are asked for, so a space of any size will do."""

    def __init__(self, task: TuningTask) -> None:
        super().__init__(task)
        self._next = 0

    def propose(self, count: int) -> list[int]:
        """The first numbers that were not seen."""
        numbers = range(self._next, self.space.range_length)
        fresh = (n for n in numbers if n not in self.known.seen and self.space.valid(n))
        found = list(islice(fresh, count))
        self._next = found[0] if found else numbers.stop
        return found

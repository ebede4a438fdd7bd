"""Devices of a plan that started again after they were lost, and whose parts then failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from time import monotonic

_LONGEST_PAUSE_S = 600.0


@dataclass(slots=True)
class DoubtedDevices:
    """They are taken for lost for a while, and then tried again: after twice as long each time that
    they fail in a row, ten minutes at most, until they compute what they are to."""

    clock: Callable[[], float] = monotonic
    _pauses_s: dict[str, float] = field(default_factory=dict[str, float])
    _until_s: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def names(self) -> set[str]:
        """Those that are not to be tried yet."""
        now_s = self.clock()
        return {name for name, until_s in self._until_s.items() if until_s > now_s}

    @property
    def over(self) -> bool:
        """Whether the time of any of them is over; not where that of all was ended."""
        return len(self.names) < len(self._until_s)

    def note(self, devices: Iterable[str], first_s: float) -> None:
        """These failed; at the first time they are tried again after so many seconds."""
        for name in devices:
            before_s = self._pauses_s.get(name)
            longest_s = max(first_s, _LONGEST_PAUSE_S)
            pause_s = first_s if before_s is None else min(longest_s, 2 * before_s)
            self._pauses_s[name], self._until_s[name] = pause_s, self.clock() + pause_s

    def without(self, lost: Collection[str]) -> set[str]:
        """Those that are not to be tried yet; none of these, which are lost again, waits."""
        self._until_s = {name: self._until_s[name] for name in self.names if name not in lost}
        return set(self._until_s)

    def end(self) -> None:
        """Let all be tried at once; what fails then again waits for longer."""
        self._until_s.clear()

    def forget(self, devices: Iterable[str]) -> None:
        """These compute again: they begin with the shortest time if they ever fail again."""
        for name in devices:
            self._pauses_s.pop(name, None)

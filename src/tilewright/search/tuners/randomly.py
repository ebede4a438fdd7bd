"""Settings drawn evenly from those not seen: what every other tuner has to beat."""

from __future__ import annotations

from tilewright.search.tuners.base import NumberTuner, TunerFactory


class RandomTuner(NumberTuner):
    """Draws without looking at outcomes."""

    def propose(self, count: int) -> list[int]:
        """Numbers drawn evenly."""
        return self.unseen(count)


TUNERS: dict[str, TunerFactory] = {"random": RandomTuner}

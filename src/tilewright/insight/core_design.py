"""What a `study cores` command asks for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tilewright.core.arguments import counts_of, texts_of
from tilewright.core.errors import UsageError
from tilewright.hardware.holding import CONTROLS, USUAL, Held, combinations
from tilewright.measure.named_neighbours import NEIGHBOURS, NONE, neighbour_of
from tilewright.plan.scheduling.planners.threads import GAINS


@dataclass(frozen=True, slots=True, kw_only=True)
class CoresDesign:
    """The grid of `study cores`.

    `cores` are the numbers of them, by default 1, 2, 4 and so on, and all that there are; one is
    always among them. `beside` are neighbours: "none", "stream" (it streams memory), "compute" (it
    computes on what its caches hold) or an `op:…` text, in float32, each on a core of its own, on
    four with "streamx4". A turning point takes at most `gains` longer than the fastest number of
    cores, as a part of its time. `smt`, `governors`, `turbo`, `clocks`, `power_caps` and
    `cache_ways` are values of controls that are held meanwhile, as in `Design`. Raises UsageError
    for values that none of these can have.
    """

    cores: tuple[int, ...] = ()
    beside: tuple[str, ...] = (NONE, *NEIGHBOURS)
    gains: tuple[float, ...] = (GAINS[0],)
    smt: tuple[str, ...] = (USUAL,)
    governors: tuple[str, ...] = (USUAL,)
    turbo: tuple[str, ...] = (USUAL,)
    clocks: tuple[str, ...] = (USUAL,)
    power_caps: tuple[str, ...] = (USUAL,)
    cache_ways: tuple[str, ...] = (USUAL,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", counts_of(self.cores, "cores", 1))
        for name in ("beside", *CONTROLS):
            each = dict.fromkeys(texts_of(getattr(self, name), name))
            object.__setattr__(self, name, tuple(each))
        gains = (self.gains,) if isinstance(self.gains, int | float) else tuple(self.gains)
        object.__setattr__(self, "gains", tuple(map(_gain_of, gains)))
        if not (self.beside and self.gains and self.held):
            raise UsageError(
                "The grid needs at least one value of each kind.", hint="--beside none"
            )
        for name in self.beside:
            neighbour_of(name)

    @property
    def held(self) -> tuple[tuple[Held, ...], ...]:
        """Every combination of values of controls; an empty one leaves all as they are."""
        return combinations({control: getattr(self, name) for name, control in CONTROLS.items()})

    def grid(self, there: int) -> tuple[int, ...]:
        """The numbers of cores on a machine that has so many."""
        usual = [2**power for power in range(there.bit_length())]
        return tuple(sorted({1, *(self.cores or (*usual, there))}))


def _gain_of(value: object) -> float:
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < inf):
        raise UsageError(f"gains must be numbers above 0, such as 0.05, not {value!r}.")
    return float(value)

"""What is asked of a server: how often each network, within which time, and how many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from math import inf, isfinite
from typing import Self, cast

from tilewright.core import arguments
from tilewright.core.errors import UsageError, close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests per second of each network, none where all are asked equally often; the time within
    which each is to be answered, `every_s` those that `limits_s` do not name; and, instead of a
    rate, how many requests for each come at a time."""

    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    every_s: float | None = None
    limits_s: Mapping[str, float] = field(default_factory=dict[str, float])
    burst: int | None = None

    @classmethod
    def read(
        cls, networks: Iterable[str], deadline_s: object, rates: object, burst: object
    ) -> Self:
        """What `serve` takes. Raises UsageError for an unknown network, a rate that is missing, no
        number or not above 0, and for rates beside a burst."""
        names = list(networks)
        several = isinstance(deadline_s, Mapping)
        limits_s = _numbers(cast(object, deadline_s), "deadline_s", names) if several else {}
        found = {} if rates is None else _numbers(rates, "rates", names)
        left = [name for name in names if name not in found] if found else []
        if left:
            raise UsageError(
                f"rates have no number for {left[0]!r}",
                hint="Give each network one: only their ratios count where more is answered.",
            )
        count = None if burst is None else arguments.count_of(burst, "burst", 1)
        if count is not None and found:
            raise UsageError("A burst comes at a time, and rates come one by one: use one.")
        every_s = None if several or deadline_s is None else _number(deadline_s, "deadline_s")
        return cls(rates=found, every_s=every_s, limits_s=limits_s, burst=count)

    def limit_s(self, network: str) -> float:
        """Seconds, infinite without a deadline."""
        return self.limits_s.get(network, inf if self.every_s is None else self.every_s)

    def deadline_s(self, network: str) -> float | None:
        """The same as requests take it."""
        limit_s = self.limit_s(network)
        return limit_s if limit_s < inf else None

    def rate(self, network: str) -> float:
        """Requests per second; 1 where all networks are asked equally often."""
        return self.rates.get(network, 1.0)

    @property
    def has_deadlines(self) -> bool:
        """Whether any network has one."""
        return self.every_s is not None or bool(self.limits_s)

    def turns(self, networks: Iterable[str], begun: float = 0.0) -> Iterator[str]:
        """Networks in an endless turn, each as often as its rate says; the first ones first. What
        is asked seldom has its first turn the sooner the more of it, up to 1, has `begun`."""
        names = list(networks)
        if not self.rates:
            yield from cycle(names)
        highest = max(self.rate(name) for name in names)
        debts = dict.fromkeys(names, begun)
        while True:
            for name in names:
                debts[name] += self.rate(name) / highest
                if debts[name] >= 1 - 1e-9:
                    debts[name] -= 1
                    yield name


EQUALLY_OFTEN = Demand()
"""All networks are asked equally often, one request after the other, without deadlines."""


def _numbers(given: object, name: str, networks: list[str]) -> dict[str, float]:
    found = arguments.named_of(given, name)
    for each in found:
        if each not in networks:
            raise UsageError(
                f"{name} name {each!r}, which is not served", hint=close_matches(each, networks)
            )
    return {each: _number(value, f"{name} of {each!r}") for each, value in found.items()}


def _number(value: object, name: str) -> float:
    found = float(value) if isinstance(value, (int, float)) else 0.0
    if not (found > 0 and isfinite(found)):
        raise UsageError(f"{name} must be a number above 0, not {value!r}.")
    return found

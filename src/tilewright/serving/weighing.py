"""Which instances could serve networks, and what is expected of them by the time of each batch of
each network alone on so many cores: equal instances for all networks, and beside them the best of
unequal ones, that serve some networks before others (`division`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tilewright.core.serving import InstanceKind, InstanceOption
from tilewright.core.units import format_seconds
from tilewright.serving.demand import Demand
from tilewright.serving.division import Burden, most_answers, soonest
from tilewright.serving.grouping import Costs, least_s
from tilewright.serving.layouts import Kind, Layout, layout_text

_WORTH = 0.95
"""Unequal instances are taken where equal ones do at most so much of what they do: less is within
the noise of times, and equal ones have fewer kinds of kernels and batches."""
_TOLD = 3
Alone = Mapping[str, Mapping[int, float]]
"""Seconds of each network with nothing beside it, by the number of requests in a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """Instances, and what is expected of them, as `InstanceOption` has it; the batches that count,
    by network, and how long one request for the slowest network takes."""

    kinds: tuple[Kind, ...]
    requests_per_s: float | None = None
    seconds: float | None = None
    in_time: bool = True
    batches: Mapping[str, int] = field(default_factory=dict[str, int])
    slowest_s: float = 0.0

    @property
    def text(self) -> str:
        """The instances as people write them."""
        return layout_text(self.kinds)

    @property
    def is_equal(self) -> bool:
        """Whether all instances are alike."""
        return len(set(self.kinds)) == 1

    @property
    def worth(self) -> float:
        """How good they are; in the same unit for all that are compared."""
        return self.requests_per_s or 1 / (self.seconds or inf)

    @property
    def expected(self) -> str:
        """The same in words."""
        if self.seconds is not None:
            return f"all within {format_seconds(self.seconds)}"
        return f"{self.requests_per_s:.3g} requests per second"

    def option(self, measured: float | None, *, chosen: bool) -> InstanceOption:
        """As it is answered."""
        return InstanceOption(
            instances=self.text,
            kinds=tuple(
                InstanceKind(
                    count=count, cores=kind.cores, batch=kind.batch, networks=kind.networks
                )
                for kind, count in Counter(self.kinds).items()
            ),
            requests_per_s=self.requests_per_s,
            seconds=self.seconds,
            in_time=self.in_time,
            measured=measured,
            chosen=chosen,
        )


def weighed(alone: Mapping[Layout, Alone], cores: int, demand: Demand) -> list[Weighed]:
    """The instances that suit a demand best, and then others: equal ones by layout, each with the
    times of one of its instances, and unequal ones of the same sizes on so many cores, which are
    the first only where they are in time and no equal ones are, or clearly do more."""
    equal = [_equal(layout, each, demand) for layout, each in alone.items()]
    equal.sort(key=lambda each: (each.in_time, each.worth), reverse=True)
    sizes = {layout[0]: each for layout, each in alone.items()}
    mixed = _burst(sizes, cores, demand) if demand.burst else _grouped(sizes, cores, demand)
    if mixed is None or mixed.is_equal:
        return equal
    best = equal[0]
    if mixed.in_time and (not best.in_time or best.worth <= _WORTH * mixed.worth):
        return [mixed, *equal]
    return [*equal, mixed]


def why(options: Sequence[Weighed], demand: Demand) -> str:
    """Why the first of these is the best, and what others would do."""
    best, *others = options
    batches = [f"{size} of {name!r}" for name, size in best.batches.items() if size > 1]
    together = f", in batches of {', '.join(batches)}" if batches else ""
    on = f" on {best.kinds[0].cores} of its cores" if best.is_equal else ""
    told = (
        f"{best.text} should answer {best.expected}{together}, by the times of each network "
        f"alone{on}."
    )
    if demand.rates and best.requests_per_s is not None:
        asked = best.requests_per_s / sum(demand.rates.values())
        told += f" That is {asked:.2f} times the rates that were asked."
    if demand.has_deadlines and not best.in_time:
        told += f" None has time: the slowest network takes {format_seconds(best.slowest_s)} there."
    unequal = [each for each in others if not each.is_equal]
    shown = (unequal + [each for each in others if each.is_equal])[:_TOLD]
    if shown:
        told += f" Instead: {'; '.join(_instead(each, demand) for each in shown)}."
    return told


def _instead(other: Weighed, demand: Demand) -> str:
    late = ", not in time" if demand.has_deadlines and not other.in_time else ""
    return f"{other.text}, {other.expected}{late}"


def _equal(layout: Layout, alone: Alone, demand: Demand) -> Weighed:
    """Instances alike, each of which serves all networks in turn."""
    kinds, limits_s = tuple(Kind(cores) for cores in layout), demand.limit_s
    slowest_s = max(times_s[1] for times_s in alone.values())
    if demand.burst:
        each = -(-demand.burst // len(layout))
        seconds = sum(least_s(_costs(times_s), each, 1.0) for times_s in alone.values())
        in_time = seconds <= min(map(limits_s, alone))
        return Weighed(kinds=kinds, seconds=seconds, in_time=in_time, slowest_s=slowest_s)
    best = {name: _best_batch(times_s, limits_s(name)) for name, times_s in alone.items()}
    work_s = sum(demand.rate(name) * s for name, (_, s) in best.items())
    return Weighed(
        kinds=kinds,
        requests_per_s=len(layout) * sum(map(demand.rate, alone)) / work_s,
        in_time=all(times_s[1] <= limits_s(name) for name, times_s in alone.items()),
        batches={name: size for name, (size, _) in best.items()},
        slowest_s=slowest_s,
    )


def _costs(times_s: Mapping[int, float]) -> Costs:
    return tuple(sorted(times_s.items()))


def _best_batch(times_s: Mapping[int, float], limit_s: float) -> tuple[int, float]:
    """The size that takes least time for each of its requests, and that; of those within a
    limit, and 1."""
    in_time = [size for size, takes_s in times_s.items() if takes_s <= limit_s or size == 1]
    best = min(in_time, key=lambda size: times_s[size] / size)
    return best, times_s[best] / best


def _grouped(sizes: Mapping[int, Alone], cores: int, demand: Demand) -> Weighed | None:
    """The groups of networks, each with instances of its own, that answer most in time."""
    names = list(next(iter(sizes.values())))
    best = {
        (size, name): _best_batch(alone[name], demand.limit_s(name))
        for size, alone in sizes.items()
        for name in names
    }

    def work_s(size: int, name: str) -> float:
        late = sizes[size][name][1] > demand.limit_s(name)
        return inf if late else demand.rate(name) * best[size, name][1]

    found = most_answers([{c: work_s(c, name) for c in sizes} for name in names], cores)
    if found is None:
        return None
    kinds: list[Kind] = []
    batches, slowest_s = Counter[str](), 0.0
    for group in found.groups:
        members = tuple(names[place] for place in group.networks)
        for size in group.cores:
            chosen = {name: best[size, name][0] for name in members}
            batches |= Counter(chosen)
            slowest_s = max(slowest_s, *(sizes[size][name][1] for name in members))
            most = max(chosen.values()) if _has_batches(sizes) else None
            kinds.append(Kind(size, most, members if len(found.groups) > 1 else ()))
    return Weighed(
        kinds=_sorted(kinds),
        requests_per_s=found.times * sum(map(demand.rate, names)),
        batches=batches,
        slowest_s=slowest_s,
    )


def _burst(sizes: Mapping[int, Alone], cores: int, demand: Demand) -> Weighed | None:
    """The instances, each for one network, that answer requests that come at a time soonest."""
    names, burst = list(next(iter(sizes.values()))), demand.burst or 1
    burdens = [
        _burden({c: _costs(alone[name]) for c, alone in sizes.items()}, burst) for name in names
    ]
    found = soonest(burdens, [burst] * len(names), cores)
    if found is None:
        return None
    kinds = [
        Kind(size, count if _has_batches(sizes) else None, (name,) if len(names) > 1 else ())
        for name, instances in zip(names, found.networks, strict=True)
        for size, count in instances
    ]
    return Weighed(
        kinds=_sorted(kinds),
        seconds=found.seconds,
        in_time=found.seconds <= min(map(demand.limit_s, names)),
        slowest_s=max(
            sizes[kind.cores][name][1] for kind in kinds for name in kind.networks or names
        ),
    )


def _burden(costs: Mapping[int, Costs], burst: int) -> Burden:
    """Seconds of so many requests on an instance of each size, in the best batches; numbers of
    requests to which one more can be added on every size in the same time are left out."""
    rows = {
        count: {size: least_s(each, count, 1.0) for size, each in costs.items()}
        for count in range(1, burst + 1)
    }
    return {count: row for count, row in rows.items() if row != rows.get(count + 1)}


def _has_batches(sizes: Mapping[int, Alone]) -> bool:
    return any(len(times_s) > 1 for alone in sizes.values() for times_s in alone.values())


def _sorted(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    return tuple(sorted(kinds, key=lambda kind: (-kind.cores, -(kind.batch or 0), kind.networks)))

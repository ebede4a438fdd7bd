"""What kernels cost: in layouts that were measured, by the facts in others, and in a network.

Alone, a kernel is timed with activations that were just written and with its own weights as the
last run left them. In a network other kernels ran meanwhile and took the caches: costs are
corrected by what was seen of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from statistics import fmean, median

from tilewright.core.forms import Form
from tilewright.core.grouping import grouped
from tilewright.core.records import Candidate, Outcome, Placement
from tilewright.graph import arrange, network, plan_result
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF
from tilewright.kernels.half_noise import multiplied_half
from tilewright.kernels.halves import half_types
from tilewright.kernels.ports import Ports
from tilewright.kernels.registry import implementations
from tilewright.kernels.spaces import (
    MAX_ERROR,
    default_candidate,
    ranked_defaults,
    too_inexact,
)
from tilewright.plan.network_problem import Time
from tilewright.store import base, known_candidates

Kernel = tuple[str, Ports, str]
"""The workload's key, the forms of the ports, and the implementation."""
Timed = tuple[Kernel, float, float]
"""A kernel with the seconds of a call alone and in a network."""


def timed_kernels(result: plan_result.PlanResult) -> Iterator[Timed]:
    """The kernels of a plan that were timed in its network, where their times alone are known."""
    for call in result.plan.calls:
        known = result.call(call.name)
        if known.alone is not None and known.in_place_s is not None:
            kernel = (*call.task, call.candidate.implementation)
            yield kernel, known.alone.latency_s, known.in_place_s


def corrected_sum(
    result: plan_result.PlanResult, race: Iterable[plan_result.PlanResult]
) -> float | None:
    """The sum of a plan's kernels, each corrected by how long it took in the networks of the others
    of the race; None where a time is missing, or nobody else raced."""
    others = [other for other in race if other is not result]
    if result.predicted_s is None or not others:
        return None
    seen = InNetworkFactors(timed for other in others for timed in timed_kernels(other))
    return sum(alone_s * seen.factor(*kernel) for kernel, alone_s, _ in timed_kernels(result))


class InNetworkFactors:
    """Factors from a kernel's time alone to its time in a network.

    Where a kernel was not seen itself, it counts what was seen of the same implementation and
    workload in other layouts, else of the workload, else of the implementation, else of
    everything. A factor is a ratio of sums, so that the longest calls, where handling and noise
    matter least, count most.
    """

    def __init__(self, seen: Iterable[Timed] = ()) -> None:
        timed = grouped([(kind, each) for each in seen for kind in _kinds(*each[0])])
        self._sums = {
            kind: (sum(alone_s for _, alone_s, _ in same), sum(there_s for _, _, there_s in same))
            for kind, same in timed.items()
        }

    def factor(self, workload_key: str, ports: Ports, implementation: str) -> float:
        """Time in a network / time alone; 1 where nothing was seen."""
        for kind in _kinds(workload_key, ports, implementation):
            alone_s, in_network_s = self._sums.get(kind, (0.0, 0.0))
            if alone_s > 0.0:
                return in_network_s / alone_s
        return 1.0


def _kinds(workload_key: str, ports: Ports, implementation: str) -> list[tuple[object, ...]]:
    """What a kernel is seen as, the most special first."""
    return [
        (workload_key, ports, implementation),
        (workload_key, implementation),
        ("workload", workload_key),
        ("implementation", implementation),
        (),
    ]


_Kernel = tuple[Candidate, float]
"""What computes a workload, and its seconds."""
_Kernels = Mapping[str, _Kernel]
"""The fastest of each implementation."""


@dataclass(slots=True, kw_only=True)
class LayoutCosts:
    """Times of kernels by implementation, measured where they are known.

    Elsewhere the facts' estimate is scaled by how far it was off for the same workload in other
    layouts (those that write the same layout count double), or for the implementation as a whole.
    Implementations with an error bound above `max_error` have no times. All times are corrected by
    how long kernels took `in_network`, where that was seen. Estimates count `doubt` times as
    much as they say: a solver picks those that are furthest too low. Without `guessing` only what
    was measured has a time, and what default layouts need.
    """

    placement: Placement
    max_error: float = MAX_ERROR
    in_network: InNetworkFactors = field(default_factory=InNetworkFactors)
    guessing: bool = True
    doubt: float = 1.0
    _known: dict[str, dict[Ports, _Kernels]] = field(
        default_factory=dict[str, dict[Ports, _Kernels]]
    )
    _guesses: dict[tuple[str, Ports], _Kernels] = field(
        default_factory=dict[tuple[str, Ports], _Kernels]
    )
    _rounding: dict[tuple[str, Ports], _Kernels] = field(
        default_factory=dict[tuple[str, Ports], _Kernels]
    )
    _workloads: dict[str, Workload] = field(default_factory=dict[str, Workload])
    _usual: dict[str, float] = field(default_factory=dict[str, float])
    _searched: set[tuple[str, Ports]] = field(default_factory=set[tuple[str, Ports]])
    _needed: set[tuple[str, Ports]] = field(default_factory=set[tuple[str, Ports]])

    def learn(
        self,
        workload: Workload,
        ports: Ports,
        outcomes: Iterable[Outcome],
        *,
        searched: bool,
        needed: bool = False,
    ) -> None:
        """Take in all that is believed of a workload in its layouts; replaces what was known.

        With `searched` every implementation had its chance: those without a time are out, and where
        none has one, these layouts are, unless they are `needed`.
        """
        fastest: dict[str, _Kernel] = {}
        out = too_inexact(workload, ports, self.placement, self.max_error)
        found = [o for o in outcomes if o.candidate.implementation not in out]
        for measurement in known_candidates.ranked(found):
            candidate = measurement.candidate
            fastest.setdefault(candidate.implementation, (candidate, measurement.latency_s))
        self._workloads[workload.key] = workload
        self._known.setdefault(workload.key, {})[ports] = fastest
        self._usual.clear()
        if needed:
            self._needed.add((workload.key, ports))
        if searched and found and (fastest or not needed):
            self._searched.add((workload.key, ports))

    def kernels(self, workload: Workload, ports: Ports) -> dict[str, Time]:
        """The best time of each implementation, measured or modelled."""
        key = (workload.key, ports)
        measured = self._known.get(workload.key, {}).get(ports, {})
        times = {name: (seconds, True) for name, (_, seconds) in measured.items()}
        if key not in self._searched and (self.guessing or (not times and key in self._needed)):
            times |= {
                name: (self.doubt * guess * self._correction(workload, ports, name), False)
                for name, (_, guess) in self._guess(workload, ports).items()
                if name not in times
            }
        return {
            name: Time(seconds=alone_s * self.in_network.factor(*key, name), measured=known)
            for name, (alone_s, known) in times.items()
        }

    def rounding(self, workload: Workload, ports: Ports) -> dict[str, Time]:
        """Estimates of implementations that make halves of the singles that they read: searches in
        mixtures leave these out, so that they are not doubted. Nothing where nothing is guessed."""
        found: _Kernels = self._rounding_guess(workload, ports) if self.guessing else {}
        return {
            name: Time(
                seconds=guess
                * self._correction(workload, ports, name)
                * self.in_network.factor(workload.key, ports, name),
                measured=False,
                searchable=False,
            )
            for name, (_, guess) in found.items()
        }

    def corrected(self, in_network: InNetworkFactors) -> LayoutCosts:
        """A copy with times corrected by `in_network` that guesses none, and learns on its own."""
        return replace(
            self,
            in_network=in_network,
            guessing=False,
            _known={key: dict(found) for key, found in self._known.items()},
            _searched=set(self._searched),
            _needed=set(self._needed),
            _usual=dict(self._usual),
        )

    def change(self, kind: network.TensorType, source: Form, target: Form) -> Time:
        """The time to copy a tensor from one layout into another; infinite where that failed."""
        times = self.kernels(arrange.copying(kind), (source, target)).values()
        return min(times, key=_believed, default=Time(seconds=inf, measured=True))

    def candidate(self, workload: Workload, ports: Ports, implementation: str | None) -> Candidate:
        """The fastest measured one of an implementation, else the best guess of its facts; without
        an implementation, of the one that a change takes."""
        times = self.kernels(workload, ports)
        if implementation not in times:
            rounding: _Kernels = self._rounding_guess(workload, ports) if implementation else {}
            if implementation and implementation in rounding:
                return rounding[implementation][0]
            if not times:
                return default_candidate(workload, ports, self.placement, self.max_error)[0]
            implementation = min(times, key=lambda name: _believed(times[name]))
        measured = self._known.get(workload.key, {}).get(ports, {})
        found = measured.get(implementation) or self._guess(workload, ports)[implementation]
        return found[0]

    def _guess(self, workload: Workload, ports: Ports) -> _Kernels:
        """The facts' estimates of the best settings, by implementation."""
        key = (workload.key, ports)
        if key not in self._guesses:
            found = ranked_defaults(workload, ports, self.placement, self.max_error)
            self._guesses[key] = {guess[0].implementation: guess for guess in found}
        return self._guesses[key]

    def _rounding_guess(self, workload: Workload, ports: Ports) -> _Kernels:
        """The same of those that only where all is in halves would be allowed."""
        if HALF not in half_types(self.placement):
            return {}
        key = (workload.key, ports)
        if key not in self._rounding:
            alone = replace(self.placement, precision=HALF)
            every = implementations()
            self._rounding[key] = {
                guess[0].implementation: guess
                for guess in ranked_defaults(workload, ports, alone, self.max_error)
                if multiplied_half(every.get(guess[0].implementation))
            }
        return self._rounding[key]

    def _correction(self, workload: Workload, ports: Ports, name: str) -> float:
        """Measured time / estimate of an implementation near these layouts, else the median of all
        workloads, 1 where nothing was measured."""
        near = self._ratios(workload, name)
        if near:
            weights = [2 if other[-1] == ports[-1] else 1 for other in near]
            return exp(fmean(map(log, near.values()), weights))
        if name not in self._usual:
            every = [r for w in self._workloads.values() for r in self._ratios(w, name).values()]
            self._usual[name] = median(every) if every else 1.0
        return self._usual[name]

    def _ratios(self, workload: Workload, name: str) -> dict[Ports, float]:
        """Measured time / estimate of an implementation in all layouts where both are known."""
        timed = {p: m for p, m in self._known.get(workload.key, {}).items() if name in m}
        guesses = {ports: self._guess(workload, ports).get(name) for ports in timed}
        return {
            ports: timed[ports][name][1] / guess[1]
            for ports, guess in guesses.items()
            if guess and guess[1]
        }


def _believed(time: Time) -> tuple[bool, float]:
    """What is measured comes first, then what is short."""
    return not time.measured, time.seconds


def recorded_costs(
    workloads: Iterable[Workload], store: base.Store, placement: Placement, max_error: float
) -> LayoutCosts:
    """The costs of kernels by what the store knows of workloads on a device of this class."""
    costs = LayoutCosts(placement=placement, max_error=max_error)
    for workload in {each.key: each for each in workloads}.values():
        for ports, outcomes in stored_by_forms(workload, store, placement).items():
            costs.learn(workload, ports, outcomes, searched=False)
    return costs


def stored_by_forms(
    workload: Workload, store: base.Store, placement: Placement
) -> dict[Ports, list[Outcome]]:
    """All that the store knows of a workload on a device of this class, by port layouts."""
    outcomes = known_candidates.own(known_candidates.allowed_outcomes(workload, store, placement))
    return grouped([(outcome.candidate.forms, outcome) for outcome in outcomes])

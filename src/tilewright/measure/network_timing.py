"""Timing whole networks in turn with each other and with peers."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.core.budget import Budget
from tilewright.core.timings import NOISY_ROUNDS, Timing
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.island import CALLED, NAME
from tilewright.kernels.registry import builder_of
from tilewright.measure.networks import NetworkRunner
from tilewright.measure.peers.base import Peer

ROUNDS, _MOST_ROUNDS = 5, 15
ROUND_S = 0.6
_FEWEST, _MOST = 2, 30
_WATCHED = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """`count` rounds, in each of which a runner takes about `each_s` seconds.

    Where rounds of one differ much, there are as many again, up to 15, while the `budget` has
    seconds for them.
    """

    count: int = ROUNDS
    each_s: float = ROUND_S
    budget: Budget | None = None

    @property
    def spare_s(self) -> float:
        """Seconds that nothing else needs."""
        return 0.0 if self.budget is None or self.budget.nothing else self.budget.remaining_s


ONCE = Rounds()
"""The usual rounds, not repeated."""

Runner = Callable[[int, int], Sequence[float]]
"""(repeats, warm-up runs) → seconds of each run."""


def network_runner(worker: NetworkRunner, name: str, inputs: Sequence[Array]) -> Runner:
    """Times a loaded network."""
    return lambda repeats, warmup: worker.time(name, inputs, repeats=repeats, warmup=warmup)


def peer_runner(peer: Peer, inputs: Mapping[str, Array]) -> Runner:
    """Times a started peer."""
    return lambda repeats, warmup: peer.time(inputs, repeats, warmup)


def time_places(
    worker: NetworkRunner, name: str, plan: NetworkPlan, inputs: Sequence[Array]
) -> dict[str, float]:
    """Seconds of every call in a loaded network, by the call's name; each is a median over runs."""
    timed: defaultdict[str, deque[float]] = defaultdict(deque)
    for symbol, seconds in worker.time_calls(name, inputs, repeats=_WATCHED):
        timed[symbol].append(seconds)
    called = (
        (call.name, timed[CALLED if builder_of(call.candidate) == NAME else plan.symbol(call)])
        for call in plan.calls
    )
    return {name: of_kernel.popleft() for name, of_kernel in called if of_kernel}


def time_together(runners: Mapping[str, Runner], rounds: Rounds = ONCE) -> dict[str, Timing]:
    """Times all runners A B A B."""
    turns = {
        name: partial(runner, _repeats(runner, rounds.each_s), 1)
        for name, runner in runners.items()
    }
    rounds_s: dict[str, list[tuple[float, ...]]] = {name: [] for name in runners}
    while True:
        began_s = time.monotonic()
        for name, more in time_in_turn(turns, rounds.count).items():
            rounds_s[name] += more
        took_s = time.monotonic() - began_s
        timings = {name: Timing(rounds_s=tuple(found)) for name, found in rounds_s.items()}
        steady = all(timing.variation <= NOISY_ROUNDS for timing in timings.values())
        done = max((len(found) for found in rounds_s.values()), default=0)
        if steady or done + rounds.count > _MOST_ROUNDS or rounds.spare_s < took_s:
            return timings


def time_in_turn(
    runners: Mapping[str, Callable[[], Sequence[float]]], rounds: int
) -> dict[str, list[tuple[float, ...]]]:
    """The samples of each runner, in seconds, round by round, taken A B A B for `rounds` rounds.

    A runner times itself once more with each call and must leave nothing spinning behind.
    """
    taken = [{name: tuple(run()) for name, run in runners.items()} for _ in range(rounds)]
    return {name: [samples_s[name] for samples_s in taken] for name in runners}


def _repeats(runner: Runner, round_s: float) -> int:
    once_s = min(runner(2, 1))
    return max(_FEWEST, min(_MOST, round(round_s / max(once_s, 1e-6))))

"""Timing whole networks in turn with each other and with peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tilewright.graph.network import Array
from tilewright.kernels.blueprint import NetworkBlueprint, TaskKey
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.peers.base import Peer
from tilewright.measure.peers.turns import time_in_turn

ROUNDS = 5
ROUND_S = 0.6
_FEWEST, _MOST = 2, 30
_WATCHED = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Raw samples in seconds, in the order they were taken."""

    samples_s: tuple[float, ...]

    @property
    def latency_s(self) -> float:
        """Median."""
        return median(self.samples_s)

    @property
    def spread(self) -> float:
        """Interquartile range / median."""
        ordered = sorted(self.samples_s)
        quarter = len(ordered) // 4
        return (ordered[-1 - quarter] - ordered[quarter]) / self.latency_s


Runner = Callable[[int, int], Sequence[float]]
"""(repeats, warm-up runs) → seconds of each run."""


def network_runner(worker: NetworkWorker, name: str, inputs: Sequence[Array]) -> Runner:
    """Times a loaded network."""
    return lambda repeats, warmup: worker.time(name, inputs, repeats=repeats, warmup=warmup)


def peer_runner(peer: Peer, inputs: Mapping[str, Array]) -> Runner:
    """Times a started peer."""
    return lambda repeats, warmup: peer.time(inputs, repeats, warmup)


def time_places(
    worker: NetworkWorker, name: str, plan: NetworkBlueprint, inputs: Sequence[Array]
) -> dict[TaskKey, float]:
    """Mean seconds of a call of each task in a loaded network; each call is a median over runs."""
    calls: dict[str, list[float]] = {}
    for symbol, seconds in worker.time_calls(name, inputs, repeats=_WATCHED):
        calls.setdefault(symbol, []).append(seconds)
    return {key: fmean(calls[symbol]) for key, symbol in plan.symbols.items() if symbol in calls}


def time_together(
    runners: Mapping[str, Runner], *, rounds: int = ROUNDS, round_s: float = ROUND_S
) -> dict[str, Timing]:
    """Times all runners A B A B; each gets as many repeats a round as last about `round_s`."""
    repeats = {name: _repeats(runner, round_s) for name, runner in runners.items()}

    def bound(name: str) -> Callable[[], Sequence[float]]:
        return lambda: runners[name](repeats[name], 1)

    samples = time_in_turn({name: bound(name) for name in runners}, rounds)
    return {name: Timing(samples_s=tuple(values)) for name, values in samples.items()}


def _repeats(runner: Runner, round_s: float) -> int:
    once_s = min(runner(2, 1))
    return max(_FEWEST, min(_MOST, round(round_s / max(once_s, 1e-6))))

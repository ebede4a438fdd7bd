"""What two kernels or networks take beside each other, and alone, in turn.

    a   a a a a a a a a a a a a a a a a a a a a       then the same of b, with a now and then
    b               b b b b b           b b b b b
        └─ alone ─┘ └─beside┘ └─alone─┘ └─beside┘

Each of the two runs without pause while the other one comes and goes, so that what else happens on
the machine hits both times of it alike. Beside each other, only calls count that began after the
other one's first calls were done and ended before it stopped, by a clock that both share.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

from tilewright.core.processes import ChildError
from tilewright.core.records import Candidate, Placement
from tilewright.core.timings import Burst
from tilewright.graph.workload import Workload
from tilewright.measure.base import BUILD_TIMEOUT_S
from tilewright.measure.beside import Player, running
from tilewright.measure.circumstances import kernel_protocol
from tilewright.measure.kernels import open_worker

ROUNDS = 5
WINDOW_S = 0.03
_LEAST_S, _LEAST_BURSTS = 0.01, 8
"""A window has so many bursts of the slower one."""
_BEGIN_S = 60.0

Rounds = tuple[float, ...]
Span = tuple[float, float]
"""From when to when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTimes:
    """Seconds per call of each of two, round by round, alone and beside the other."""

    alone_s: tuple[Rounds, Rounds]
    beside_s: tuple[Rounds, Rounds]

    @property
    def slowdowns(self) -> tuple[float, float]:
        """How many times as long either takes beside the other: the median of the rounds."""
        first, second = map(median, self._ratios)
        return first, second

    @property
    def spread(self) -> float:
        """By how much the rounds' slowdowns differ at most, over their median."""
        return max((max(each) - min(each)) / median(each) for each in self._ratios)

    @property
    def joint_gain(self) -> float:
        """How many times as much both get done beside each other as in turn on the same cores: the
        sum of the speeds that are left to them."""
        return sum(1.0 / slowdown for slowdown in self.slowdowns)

    @property
    def _ratios(self) -> list[list[float]]:
        pairs = zip(self.alone_s, self.beside_s, strict=True)
        return [[b / a for a, b in zip(alone, beside, strict=True)] for alone, beside in pairs]


def pair_times(
    players: tuple[Player, Player],
    pool: ThreadPoolExecutor,
    *,
    rounds: int = ROUNDS,
    window_s: float = WINDOW_S,
) -> PairTimes:
    """Time two players in windows of `window_s` seconds, or of a few calls of the slower one.

    Raises what `running` raises, and ChildError where no call of one ran beside the other.
    """
    slowest_s = 0.0
    for player in players:
        with running([player], pool, _BEGIN_S) as found:
            time.sleep(_LEAST_S)
        slowest_s = max(slowest_s, *(burst.end_s - burst.begin_s for burst in found[0]))
    window_s = max(window_s, _LEAST_BURSTS * slowest_s)
    first, second = players
    (alone, beside), (other_alone, other_beside) = (
        _in_turn(own, other, pool, (rounds, window_s))
        for own, other in ((first, second), (second, first))
    )
    return PairTimes(alone_s=(alone, other_alone), beside_s=(beside, other_beside))


def _in_turn(
    own: Player, other: Player, pool: ThreadPoolExecutor, rounds: tuple[int, float]
) -> tuple[Rounds, Rounds]:
    """Seconds per call of one that runs all the time, alone and while the other one does."""
    count, window_s = rounds
    alone: list[Span] = []
    beside: list[Span] = []
    with running([own], pool, _BEGIN_S) as bursts:
        for _ in range(count):
            began_s = time.perf_counter()
            time.sleep(window_s)
            alone.append((began_s, time.perf_counter()))
            with running([other], pool, _BEGIN_S) as others:
                time.sleep(window_s)
            (theirs,) = others
            if not theirs:
                raise ChildError("what runs beside did nothing")
            beside.append((theirs[0].begin_s, theirs[-1].end_s))
    return (
        tuple(per_call_s(bursts[0], span) for span in alone),
        tuple(per_call_s(bursts[0], span) for span in beside),
    )


def per_call_s(bursts: Sequence[Burst], span: Span) -> float:
    """Seconds of a call: the median of the bursts within a span, so that an interruption of one
    does not count. Raises ChildError where there is none."""
    begin_s, end_s = span
    within = [b.busy_s / b.calls for b in bursts if begin_s <= b.begin_s and b.end_s <= end_s]
    if not within:
        raise ChildError("no call ran while the other one did")
    return median(within)


class KernelPairs:
    """Kernels built in two processes, each on cores of its own, so that any two can be timed beside
    each other. Use as a context manager."""

    def __init__(self, placements: tuple[Placement, Placement], *, seed: int = 0) -> None:
        self._seed = seed
        self._workers = [(place, open_worker(place)) for place in placements]
        self._built: dict[tuple[int, str, Candidate], int] = {}
        self._pool = ThreadPoolExecutor(len(placements))

    def __enter__(self) -> Self:
        for _, worker in self._workers:
            worker.get_ready()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for _, worker in self._workers:
            worker.stop()

    def times(
        self, pair: Sequence[tuple[Workload, Candidate]], *, rounds: int = ROUNDS
    ) -> PairTimes:
        """Time two kernels, one on each placement. Raises ChildError or RemoteError where one does
        not build, crashes, hangs, or ends before the other one was timed."""
        first, second = (self._player(side, *kernel) for side, kernel in enumerate(pair))
        return pair_times((first, second), self._pool, rounds=rounds)

    def _player(self, side: int, workload: Workload, candidate: Candidate) -> Player:
        placement, worker = self._workers[side]
        key = (side, workload.text, candidate)
        if key not in self._built:
            slot = len(self._built)
            build = ("build", slot, workload.text, candidate, placement)
            worker.request(build, BUILD_TIMEOUT_S)
            self._built[key] = slot
        protocol, slot = kernel_protocol(placement), self._built[key]

        def keep_running(files: tuple[Path, Path]) -> list[Burst]:
            run = ("keep_running", slot, protocol, self._seed, *map(str, files))
            return worker.request(run, _BEGIN_S)

        return keep_running

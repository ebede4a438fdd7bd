"""Running kernels or networks without pause while something else is measured.

    with running([first, second], pool, begin_s=60.0) as bursts:
        ...                        both run, from before the block until after it
    bursts[0], bursts[1]           what each did

Whoever runs is a process on cores of its own, which a thread of `pool` waits for. It writes its
file again and again, so that one that hangs is told from one that runs (`noticing_hangs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from tilewright.core.processes import ChildError, ChildTimeout
from tilewright.core.scratch import scratch_folder
from tilewright.core.timings import Burst

Player = Callable[[tuple[Path, Path]], list[Burst]]
"""Runs something again and again while the first file is there, and writes the second one after
its first calls; what it did since."""

ENDED = "what runs beside ended before the measurement did"

_FLAG = "running"
_POLL_S = 1e-3
_SIGN_S, _WATCH_S = 0.02, 0.25
_QUIET_S = 30.0
"""How long nothing is heard of what runs beside before it counts as hanging; at least, and ten
times as long as it took to begin."""
_BEGIN_S, _TIMES = 120.0, 10


@contextmanager
def running(
    players: Sequence[Player], pool: Executor, begin_s: float
) -> Generator[list[list[Burst]]]:
    """While the block runs, so do all players; the list has what each did once the block ended.

    Raises what a player raises, ChildTimeout when one does not begin within `begin_s` seconds, and
    ChildError when one ends before the block does.
    """
    bursts = list[list[Burst]]()
    with scratch_folder() as folder:
        flag = folder / _FLAG
        flag.touch()
        started = [folder / str(number) for number in range(len(players))]
        calls = [
            pool.submit(player, (flag, path)) for player, path in zip(players, started, strict=True)
        ]
        try:
            _wait(started, calls, begin_s)
            yield bursts
            early = any(call.done() for call in calls)
        finally:
            flag.unlink()
            wait(calls)
        bursts.extend(call.result() for call in calls)
    if early:
        raise ChildError(ENDED)


def going_on(flag: Path, sign: Path) -> Callable[[], bool]:
    """Whether `flag` is there, for whoever runs as long as it is and asks before each run; `sign`
    is touched by that, now and then."""
    last_s = 0.0

    def goes_on() -> bool:
        nonlocal last_s
        if time.monotonic() - last_s > _SIGN_S:
            sign.touch()
            last_s = time.monotonic()
        return flag.exists()

    return goes_on


def quiet_s(sign: Path) -> float:
    """For how many seconds a file has not been written; 0 where there is none."""
    try:
        return time.time() - sign.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@dataclass(slots=True)
class Watched:
    """What is known of what runs: whether it `hangs`, and after how many seconds it first gave a
    sign, None before that."""

    hangs: bool = False
    began_s: float | None = None


Pause = Callable[[Event, float], bool]
"""Waits for an event so many seconds at most; whether it is set."""


@contextmanager
def noticing_hangs(
    sign: Path, end: Callable[[], None], began_s: float | None = None, pause: Pause = Event.wait
) -> Generator[Watched]:
    """Call `end` from a thread of its own once what the block waits for hangs: `sign` is not
    written, or not again, for half a minute, or ten times as long as it took to be there; which is
    `began_s` where it is known from earlier, and until then two minutes. The time in which this
    process does not run does not count: seconds are those of each `pause` that ends."""
    over, watched = Event(), Watched()

    def watch() -> None:
        before, seconds, most_s = 0, 0.0, _BEGIN_S if began_s is None else _patience_s(began_s)
        while not pause(over, _WATCH_S):
            now, seconds = written_ns(sign), seconds + _WATCH_S
            if now != before:
                if not before:
                    watched.began_s, most_s = seconds, _patience_s(max(seconds, began_s or 0.0))
                before, seconds = now, 0.0
            if seconds > most_s:
                watched.hangs = True
                end()
                return
        if not before and written_ns(sign):
            watched.began_s = seconds

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield watched
    finally:
        over.set()
        watching.join()


def _patience_s(began_s: float) -> float:
    """How long nothing is heard at most of what took so long to begin."""
    return max(_QUIET_S, _TIMES * began_s)


def written_ns(path: Path) -> int:
    """When a file was written, in nanoseconds of a clock; 0 where there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def _wait(started: Sequence[Path], calls: Sequence[Future[list[Burst]]], begin_s: float) -> None:
    """Until all run."""
    deadline_s = time.monotonic() + begin_s
    while not all(path.exists() for path in started):
        for call in calls:
            if call.done():
                call.result()
                raise ChildError("what runs beside ended before it began")
        if time.monotonic() > deadline_s:
            raise ChildTimeout("a neighbour did not begin to run")
        time.sleep(_POLL_S)

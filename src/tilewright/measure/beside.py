"""Running kernels or networks without pause while something else is measured.

    with running([first, second], pool, begin_s=60.0) as bursts:
        ...                        both run, from before the block until after it
    bursts[0], bursts[1]           what each did

Whoever runs is a process on cores of its own, which a thread of `pool` waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path

from tilewright.core.processes import ChildError, ChildTimeout
from tilewright.core.scratch import scratch_folder
from tilewright.core.timings import Burst

Player = Callable[[tuple[Path, Path]], list[Burst]]
"""Runs something again and again while the first file is there, and writes the second one after
its first calls; what it did since."""

ENDED = "what runs beside ended before the measurement did"

_FLAG = "running"
_POLL_S = 1e-3


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

"""`tilewright` as a program of its own.

What `run` computes are compiled kernels, which may crash or hang. So that verb has a process of its
own, and this one, which loads nothing, waits for it:

    $ tilewright run plan --input x.npy
    error: the process that ran the network ended with signal SIGSEGV
      …                                                             exit code 1, not 139

A time that is said with `--limit` is held here, too: whatever hangs there, this process does not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from tilewright.core.settings import child_environment
from tilewright.core.signals import die_with_parent, handled_by
from tilewright.core.units import parse_duration

GUARDED, LIMIT = "run", "--limit"
GRACE_S = 5.0
"""How long a process may take to end that was asked to."""
_START = "from tilewright.cli.program import guarded; guarded()"


def main() -> int:
    """Run the command line of this process, and return its exit code."""
    tokens = sys.argv[1:]
    if tokens[:1] == [GUARDED]:
        command = [sys.executable, "-P", "-c", _START, str(os.getpid()), *tokens]
        return watched(command, tokens, limit_s=limit_of(tokens))
    from tilewright.cli.main import main as carried_out

    return carried_out()


def guarded() -> None:
    """Be the process that another one watches: its id, and then the command line, are the arguments
    of this one."""
    parent, *tokens = sys.argv[1:]
    die_with_parent(int(parent))
    sys.argv = ["tilewright", *tokens]
    from tilewright.cli.main import main as carried_out

    sys.exit(carried_out())


def limit_of(tokens: Sequence[str]) -> float | None:
    """The seconds that a command line says with `--limit`; None where it says none, or what is
    none, which the process that is watched refuses."""
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        name, _, value = token.partition("=")
        if name == LIMIT:
            return parse_duration((value or following).strip()) or None
    return None


Clock = Callable[[float, Callable[[], None]], threading.Timer]
"""Calls something after so many seconds, once it is started and unless it is cancelled before."""


def watched(
    command: Sequence[str],
    tokens: Sequence[str],
    grace_s: float = GRACE_S,
    *,
    limit_s: float | None = None,
    clock: Clock = threading.Timer,
) -> int:
    """The exit code of a command that does what `tokens` say; where it ends by a signal, or is
    killed since it takes more than `limit_s` seconds, that of a negative verdict, which is told.

    Signals that ask to stop are handed on to it. It is killed where it goes on for `grace_s`
    seconds after the first of them, as one does that hangs in a kernel.
    """
    environment = child_environment(
        PYTHONPATH=os.pathsep.join(entry for entry in sys.path if entry)
    )
    running: list[subprocess.Popen[bytes]] = []
    clocks: list[threading.Timer] = []
    late = threading.Event()

    def kill_after(seconds: float, kill: Callable[[], None]) -> threading.Timer:
        found = clock(seconds, kill)
        found.daemon = True
        found.start()
        return found

    def kill_late() -> None:
        late.set()
        running[0].kill()

    def hand_on(number: int, _frame: FrameType | None = None) -> None:
        if not running:
            raise KeyboardInterrupt
        with suppress(ProcessLookupError):
            running[0].send_signal(number)
        if not clocks:
            clocks.append(kill_after(grace_s, running[0].kill))

    try:
        with handled_by(hand_on):
            running.append(subprocess.Popen(command, env=environment, start_new_session=True))
            limits = [] if limit_s is None else [kill_after(limit_s, kill_late)]
            code = running[0].wait()
    except KeyboardInterrupt:  # before it began; it ends with this process
        return _told(signal.SIGINT, tokens, interrupted=True)
    for each in (*clocks, *limits):
        each.cancel()
    if late.is_set() and limit_s is not None and code == -signal.SIGKILL and not clocks:
        return _told_late(limit_s)
    return code if code >= 0 else _told(-code, tokens, interrupted=bool(clocks))


def _told_late(limit_s: float) -> int:
    from tilewright.cli import faults
    from tilewright.core.errors import NegativeVerdict

    ended = f"nothing was computed within {LIMIT}, {limit_s:g} s, and the process was ended"
    hint = "Compiling counts. What hangs in lanes of a plan may run with --mode sequential."
    return faults.tell_known(NegativeVerdict(ended, hint=hint))


def _told(number: int, tokens: Sequence[str], *, interrupted: bool) -> int:
    from tilewright.cli import faults
    from tilewright.core.errors import NegativeVerdict

    if interrupted:
        return faults.tell_interrupted(tokens)
    known = {each.value: each.name for each in signal.Signals}
    hint = "A kernel of the network, or a lack of memory, is the likely cause."
    plan = "A plan runs without lanes with --mode sequential."
    ended = f"the process that ran the network ended with signal {known.get(number, number)}"
    return faults.tell_known(NegativeVerdict(ended, hint=f"{hint} {plan}"))

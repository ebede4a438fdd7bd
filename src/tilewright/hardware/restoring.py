"""The process that gives back what controls of the machine were, whatever becomes of its parent:

    python -m tilewright.hardware.restoring PARENT

Its first line of input is a list of (name, text) in JSON, names of files and of settings of GPUs
(`hardware.settable`); one without text is a folder that is removed. It answers `ready`, and writes
them once its input ends or its parent is gone. Exit code 1 if one of them failed, which does not
keep it from the others.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path

from tilewright.hardware.settable import write

_POLL_S = 0.2


def main(parent: int) -> int:
    """Wait, then restore; how many writes failed, at most 1."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    steps: list[tuple[str, str | None]] = json.loads(sys.stdin.readline())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if readable:
            break
    failed = [told for path, text in steps if (told := _restore(path, text))]
    if os.getppid() == parent:
        sys.stderr.write("\n".join(failed))
    return 1 if failed else 0


def _restore(path: str, text: str | None) -> str:
    """Why it failed; empty where it did not."""
    try:
        if text is None:
            Path(path).rmdir()
        else:
            write(path, text)
    except FileNotFoundError as error:
        return "" if text is None else str(error)
    except OSError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

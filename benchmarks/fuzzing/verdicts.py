"""What counts as bad, in the end of any command."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuzzing.warm import Ended

DOCUMENTED = (0, 1, 2, 3, 4, 5)
BUG, INTERRUPTED = 70, 130
MEMORY_BYTES = 2 << 30
_IDLE = 0.05
"""A command that works for long uses more of a core than this; one that uses less waits for what
never comes."""
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'File ".*?/tilewright/([\w/]+\.py)", line \d+, in (\S+)')
_RAISED = re.compile(
    r"^([\w.]+(?:Error|Exception|Interrupt|Exit|Timeout|Crash)\b.*)$", re.MULTILINE
)
_VARIABLE = re.compile(r"0x[0-9a-f]+|'[^']*'|\"[^\"]*\"|-?\d[\d.e+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something bad. Faults of one cause have the same `group`; `text` says more."""

    group: str
    text: str


def faults_of(words: Sequence[str], ended: Ended, given_bytes: int) -> list[Fault]:
    """What is bad in how a command ended; `given_bytes` is the size of the model or file."""
    found: list[Fault] = []
    if ended.timed_out or (ended.interrupted and ended.cpu_s < _IDLE * ended.wall_s):
        found.append(Fault(group=f"hang: {words[0]}", text=f"no end within {ended.wall_s:.0f} s"))
    elif ended.code < 0:
        name = signal.Signals(-ended.code).name
        found.append(Fault(group=f"crash: {name} in {words[0]}", text=_last_lines(ended.err)))
    elif ended.code == BUG or _TRACEBACK in ended.err or _TRACEBACK in ended.out:
        found.append(_bug(ended))
    elif not _fine_code(ended):
        found.append(Fault(group=f"exit code {ended.code}", text=_last_lines(ended.err)))
    elif ended.code > 1 and "error:" not in ended.err and not ended.interrupted:
        found.append(Fault(group=f"no message at exit code {ended.code}", text=ended.err[-300:]))
    if ended.peak_bytes > MEMORY_BYTES + given_bytes:
        size = f"{ended.peak_bytes / 2**30:.1f} GiB"
        found.append(Fault(group=f"memory: {words[0]}", text=size))
    if ended.code == 0 and _wants_json(words):
        found.extend(_json_faults(words, ended))
    return found


def group_of(text: str) -> str:
    """A message without its names and numbers: what messages of one cause have in common."""
    return " ".join(_VARIABLE.sub("…", text).split())[:160]


def _fine_code(ended: Ended) -> bool:
    if ended.interrupted:
        return ended.code in (*DOCUMENTED, INTERRUPTED)
    return ended.code in DOCUMENTED


def _bug(ended: Ended) -> Fault:
    text = ended.err if _TRACEBACK in ended.err else (ended.out or ended.err)
    frames = _FRAME.findall(text)
    raised = _RAISED.findall(text)
    last = raised[-1] if raised else _last_lines(text)
    where = "{}:{}".format(*frames[-1]) if frames else "?"
    group = f"exit {ended.code}: {group_of(last)} in {where}"
    return Fault(group=group, text=f"{last[:300]} in {where}")


def _wants_json(words: Sequence[str]) -> bool:
    return any(pair == ("--format", "json") for pair in zip(words, words[1:], strict=False))


def _json_faults(words: Sequence[str], ended: Ended) -> list[Fault]:
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        json.loads(ended.out, parse_constant=refuse)
    except ValueError as error:
        return [Fault(group=f"json of {words[0]}: {group_of(str(error))}", text=ended.out[:300])]
    return []


def _last_lines(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-3:])[-300:]

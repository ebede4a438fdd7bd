"""Scheduling problems as JSON files, see docs/reference/scheduling-problem.md."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from tilewright.core.errors import ModelError
from tilewright.core.input_files import readable
from tilewright.core.output_files import replacing
from tilewright.plan.scheduling.parts import (
    Limits,
    Link,
    Merge,
    Mode,
    ScheduledCall,
    ScheduleDevice,
    Wait,
)
from tilewright.plan.scheduling.problem import SchedulingProblem

FORMAT = "tilewright scheduling problem 1"


def _struct(kind: type[Any], **others: Any) -> Any:
    """What msgspec reads one of our dataclasses as, unknown fields being refused; `others` are
    fields of another type, optional ones as a pair with the default."""
    hints = get_type_hints(kind)
    named: list[Any] = []
    for field in fields(kind):
        if field.name in others:
            given = others[field.name]
            named.append((field.name, *(given if isinstance(given, tuple) else (given,))))
        elif field.default is MISSING:
            named.append((field.name, hints[field.name]))
        else:
            named.append((field.name, hints[field.name], field.default))
    return msgspec.defstruct(
        kind.__name__, named, kw_only=True, frozen=True, forbid_unknown_fields=True
    )


_MODE = _struct(Mode, low_s=(float | None, None), high_s=(float | None, None))
_CALL = _struct(ScheduledCall, modes=tuple[_MODE, ...])
_LIMITS = _struct(Limits, deadlines_s=(dict[str, float], {}))
_FILE = _struct(
    SchedulingProblem,
    devices=tuple[_struct(ScheduleDevice), ...],
    calls=tuple[_CALL, ...],
    waits=(tuple[_struct(Wait), ...], ()),
    links=(tuple[_struct(Link), ...], ()),
    merges=(tuple[_struct(Merge, modes=tuple[_MODE, ...]), ...], ()),
    limits=(_LIMITS, _LIMITS()),
)
_FORMATTED = msgspec.defstruct("Formatted", [("format", str)])


def read_problem(path: Path) -> SchedulingProblem:
    """The problem in a file; raises ModelError for one that is missing, broken, or that cannot be
    planned."""
    with readable(path):
        text = path.read_bytes()
    return parse_problem(text, str(path))


def write_problem(problem: SchedulingProblem, path: Path) -> None:
    """Save a problem; raises OutputError where the file cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(format_problem(problem))


def format_problem(problem: SchedulingProblem) -> bytes:
    """A problem as JSON."""
    named = {field.name: getattr(problem, field.name) for field in fields(problem)}
    file: dict[str, Any] = {"format": FORMAT, "name": named.pop("name"), **named}
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def parse_problem(text: bytes | str, origin: str = "the text") -> SchedulingProblem:
    """The problem that JSON holds; `origin` is what messages call the text. An interval that is not
    given is the latency itself."""
    try:
        head: Any = msgspec.json.decode(text, type=_FORMATTED)
        if head.format != FORMAT:
            raise ModelError(f"{origin} has the format {head.format!r}; known is {FORMAT!r}.")
        rest: dict[str, Any] = msgspec.json.decode(text)
        del rest["format"]
        file: Any = msgspec.convert(rest, type=_FILE)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{origin} is no scheduling problem: {error}.",
            hint="The format is in docs/reference/scheduling-problem.md.",
        ) from error
    return SchedulingProblem(
        devices=_made(ScheduleDevice, file.devices),
        calls=tuple(
            ScheduledCall(**_named(call, modes=tuple(map(_mode, call.modes))))
            for call in file.calls
        ),
        waits=_made(Wait, file.waits),
        links=_made(Link, file.links),
        merges=tuple(
            Merge(calls=merge.calls, modes=tuple(map(_mode, merge.modes))) for merge in file.merges
        ),
        limits=Limits(**_named(file.limits)),
        handoff_s=file.handoff_s,
        objective=file.objective,
        name=file.name,
    )


def _named(struct: Any, **others: Any) -> dict[str, Any]:
    return {**msgspec.structs.asdict(struct), **others}


def _made(kind: type[Any], structs: Any) -> tuple[Any, ...]:
    return tuple(kind(**_named(struct)) for struct in structs)


def _mode(struct: Any) -> Mode:
    ends = ("low_s", "high_s")
    given = (getattr(struct, end) for end in ends)
    known = (struct.latency_s if end is None else end for end in given)
    return Mode(**_named(struct, **dict(zip(ends, known, strict=True))))

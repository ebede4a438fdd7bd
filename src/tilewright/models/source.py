"""What a MODEL argument means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilewright.core.errors import UsageError, close_matches
from tilewright.models.naming import quoted

Kind = Literal["file", "zoo", "operator"]
_PREFIXES: dict[str, Kind] = {"zoo": "zoo", "op": "operator"}
_FORMS = "MODEL is a path to an .onnx file, zoo:NAME, or op:OPERATOR[name=value,...]."


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a model comes from; `text` is the argument without its prefix."""

    kind: Kind
    text: str


def parse_source(argument: str) -> Source:
    """Take a MODEL argument apart; UsageError when it has no known form."""
    if not argument:
        raise UsageError("no model given", hint=_FORMS)
    prefix, colon, rest = argument.partition(":")
    path = Path(argument)
    if colon and prefix in _PREFIXES:
        return Source(kind=_PREFIXES[prefix], text=rest)
    if path.suffix == ".onnx" or path.is_file():
        return Source(kind="file", text=argument)
    if colon and prefix.isalpha() and len(prefix) > 1:
        known = [name + ":" for name in _PREFIXES]
        hint = f"{close_matches(prefix + ':', known)} {_FORMS}"
        raise UsageError(f"{quoted(argument)}: no models by {quoted(prefix)}", hint=hint)
    if path.is_dir():
        raise UsageError(f"{quoted(argument)} is a folder, not a model", hint=_FORMS)
    raise UsageError(f"{quoted(argument)} is no model", hint=_suggestion(argument))


def _suggestion(argument: str) -> str:
    from tilewright.models import zoo

    names = zoo.names()
    if argument in names:
        return f"Did you mean zoo:{argument}?"
    return _FORMS

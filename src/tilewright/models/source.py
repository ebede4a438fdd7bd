"""What a MODEL argument means."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.input_files import require_regular
from tilewright.models.naming import quoted, quoted_matches

Kind = Literal["file", "zoo", "operator", "transformer", "torch", "program", "url"]
_PREFIXES: dict[str, Kind] = {
    "zoo": "zoo",
    "op": "operator",
    "hf": "transformer",
    "torch": "torch",
}
_URL = re.compile(r"https?://", re.IGNORECASE)
_FILES: dict[str, Kind] = {".onnx": "file", ".pt2": "program"}
_FORMS = (
    "MODEL is a path to an .onnx or .pt2 file, an address https://…onnx#sha256=HEX, zoo:NAME, "
    "hf:NAME[name=value,...], torch:MODULE:NAME, or op:OPERATOR[name=value,...]."
)


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
    if _URL.match(argument):
        return Source(kind="url", text=argument)
    if colon and prefix in _PREFIXES:
        return Source(kind=_PREFIXES[prefix], text=rest)
    if path.suffix in _FILES or path.is_file():
        return Source(kind=_FILES.get(path.suffix, "file"), text=argument)
    if colon and prefix.isalpha() and len(prefix) > 1:
        known = [name + ":" for name in _PREFIXES]
        hint = f"{close_matches(prefix + ':', known)} {_FORMS}"
        raise UsageError(f"{quoted(argument)}: no models by {quoted(prefix)}", hint=hint)
    if path.is_dir():
        raise UsageError(f"{quoted(argument)} is a folder, not a model", hint=_FORMS)
    if path.exists():
        require_regular(path)
    from tilewright.models import zoo

    hint = f"Did you mean zoo:{argument}?" if argument in zoo.names() else _FORMS
    raise UsageError(f"{quoted(argument)} is no model", hint=hint)


def is_model_file(argument: str) -> bool:
    """Whether an argument is a path to a model, by its ending."""
    return not _URL.match(argument) and Path(argument).suffix in _FILES


def readable_name(argument: str) -> str:
    """What to call a model in the names of files: a file's stem, else what follows the prefix."""
    if _URL.match(argument):
        return Path(unquote(urlsplit(argument).path)).stem
    if is_model_file(argument):
        return Path(argument).stem
    prefix, colon, rest = argument.partition(":")
    return rest if colon and prefix in ("zoo", "hf", "torch") else argument


@contextmanager
def reading(path: Path, ending: str) -> Generator[None]:
    """Turn what the file system says of a model's file into ModelErrors; where it is missing, name
    those with the `ending` that are beside it."""
    try:
        yield
    except FileNotFoundError:
        near = [entry.name for entry in path.parent.glob(f"*{ending}")]
        hint = quoted_matches(path.name, near) if near else None
        raise ModelError(f"no such file: {quoted(path)}", hint=hint) from None
    except OSError as error:
        raise ModelError(f"cannot read {quoted(path)}: {error.strerror or error}") from error

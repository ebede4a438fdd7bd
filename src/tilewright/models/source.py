"""What a MODEL argument means, and the `NAME[key=value,...]` that some of them have inside."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from tilewright.core.errors import ModelError, UsageError, close_matches, quoted
from tilewright.core.input_files import require_regular

Kind = Literal["file", "zoo", "operator", "transformer", "torch", "program", "relax", "url"]
_PREFIXES: dict[str, Kind] = {
    "zoo": "zoo",
    "op": "operator",
    "hf": "transformer",
    "torch": "torch",
}
_URL = re.compile(r"https?://", re.IGNORECASE)
_FILES: dict[str, Kind] = {
    ".onnx": "file",
    ".pt2": "program",
    ".json": "relax",
    ".py": "relax",
}
_ARTIFACT = ("manifest.json", "shapes.json")
"""Files that tell the folder of a compiled network."""
_FORMS = (
    "MODEL is a path to an .onnx or .pt2 file, to a .json or .py file with a module of Relax, an "
    "address https://…onnx#sha256=HEX, zoo:NAME, "
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
        hint = f"{close_matches(prefix + ':', [name + ':' for name in _PREFIXES])} {_FORMS}"
        raise UsageError(f"{quoted(argument)}: no models by {quoted(prefix)}", hint=hint)
    if any((path / name).is_file() for name in _ARTIFACT):
        raise UsageError(
            f"{quoted(argument)} is an artifact, which this command does not take",
            hint="Give the model that it was made from, with the same --precision, and --settings "
            "shipped where the command takes that; profile, compare, show and run take artifacts.",
        )
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
        hint = close_matches(path.name, near, quoted) if near else None
        raise ModelError(f"no such file: {quoted(path)}", hint=hint) from None
    except OSError as error:
        raise ModelError(f"cannot read {quoted(path)}: {error.strerror or error}") from error


Value = int | tuple[int, ...]

_VALUE = re.compile(r"-?\d+(x-?\d+)*")


def split_brackets(prefix: str, text: str) -> tuple[str, str]:
    """The name and what the brackets hold, of the text after `prefix:`.

    Raises UsageError where the bracket is not closed.
    """
    name, bracket, rest = text.partition("[")
    if bracket and not rest.endswith("]"):
        raise UsageError(f"{quoted(f'{prefix}:{text}')} does not end with ']'")
    return name, rest.removesuffix("]")


def read_values(
    owner: str, text: str, known: Collection[str], listed: Collection[str]
) -> dict[str, Value]:
    """The values between the brackets by key, those of `listed` keys as tuples.

    `owner` is what the error names, such as `op:conv2d`. Raises UsageError for keys that are not
    known or come twice, and for what is no number or shape.
    """
    values: dict[str, Value] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (item.strip() for item in part.partition("="))
        if key not in known:
            raise UsageError(
                f"{owner} has no parameter {quoted(key)}", hint=close_matches(key, known)
            )
        if not equals or not _VALUE.fullmatch(value):
            raise UsageError(
                f"{owner}: {quoted(part)} is no number or shape",
                hint="Write numbers as k=3 and shapes as shape=1x64x56x56.",
            )
        if key in values:
            raise UsageError(f"{owner}: {key} is given twice")
        numbers = tuple(int(item) for item in value.split("x"))
        if key not in listed and len(numbers) != 1:
            raise UsageError(f"{owner}: {key} is one number, not {quoted(value)}")
        values[key] = numbers if key in listed else numbers[0]
    return values


def label(name: str, given: Mapping[str, Value]) -> str:
    """A name for files and reports: `conv2d`, {"c": 64} → `conv2d-c64`."""
    return "-".join([name, *(f"{key}{shown(value)}" for key, value in given.items())])


def shown(value: Value | None) -> str:
    """A value as it is written between brackets."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)

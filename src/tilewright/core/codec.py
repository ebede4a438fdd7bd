"""Records as nested plain values and as JSON, and back: what every file and table goes through; and
stable hashes, for which the same value gives the same text on every machine and in every version.

Forms are written as their texts. Records whose fields have other names in files are structs that
say so: `class Candidate(Struct, rename=FILE_NAMES)`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar

import msgspec

from tilewright.core.errors import InternalError
from tilewright.core.forms import Form, parse_form

T = TypeVar("T")

FILE_NAMES = {"forms": "layouts"}
"""What files and tables call fields: they are older than forms."""


def to_builtins(value: object) -> Any:
    """A value as dictionaries, lists and scalars."""
    return msgspec.to_builtins(value, enc_hook=_written)


def convert(value: object, kind: type[T]) -> T:
    """The value of type `kind` that dictionaries, lists and scalars describe.

    Raises `msgspec.ValidationError` where they describe none.
    """
    return msgspec.convert(value, kind, dec_hook=_read)


def encode(value: object) -> bytes:
    """A value as one line of JSON."""
    return msgspec.json.encode(value, enc_hook=_written)


def decode(text: str | bytes, kind: type[T]) -> T:
    """The value of type `kind` in a JSON text.

    Raises `msgspec.DecodeError`, of which `msgspec.ValidationError` is one, where there is none.
    """
    return msgspec.json.decode(text, type=kind, dec_hook=_read)


def canonical_json(value: Any) -> str:
    """JSON text without spaces, keys sorted; tuples as lists, records as `to_builtins` has them."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=to_builtins
    )


def digest(text: str | bytes, *, length: int = 16) -> str:
    """The first `length` hexadecimal digits of the SHA-256."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:length]


def _written(value: object) -> str:
    if isinstance(value, Form):
        return value.text
    raise TypeError(f"{type(value).__name__} has no place in a file")


def _read(kind: type[Any], value: object) -> Form:
    if kind is not Form or not isinstance(value, str):
        raise TypeError(f"expected {kind.__name__}, got {value!r:.100}")
    try:
        return parse_form(value)
    except InternalError as error:
        raise ValueError(str(error)) from error

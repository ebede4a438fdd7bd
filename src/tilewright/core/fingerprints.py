"""Stable hashes: the same value gives the same text on every machine and in every version."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tilewright.core.codec import to_builtins


def canonical_json(value: Any) -> str:
    """JSON text without spaces, keys sorted; tuples as lists, records as `codec` writes them."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=to_builtins
    )


def digest(text: str | bytes, *, length: int = 16) -> str:
    """The first `length` hexadecimal digits of the SHA-256."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:length]

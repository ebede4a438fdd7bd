"""Hashes that tell whether a file still is what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tilewright.core.fingerprints import canonical_json

_SEALS = "sha256"


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A JSON object with one more entry under `sha256`: its own hash, by `name`.

    That hash is of the canonical text of all the rest: keys in order, no spaces.
    """
    seals = {key: value for key, value in content[_SEALS].items() if key != name}
    rest = {**content, _SEALS: seals}
    own = hashlib.sha256(canonical_json(rest).encode()).hexdigest()
    return {**rest, _SEALS: {**seals, name: own}}


def is_sealed(content: Mapping[str, Any], name: str) -> bool:
    """Whether a JSON object has its own hash, and the right one."""
    seals = content.get(_SEALS)
    known = cast("dict[str, Any]", seals) if isinstance(seals, dict) else {}
    return name in known and sealed(content, name)[_SEALS][name] == known[name]

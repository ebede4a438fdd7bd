"""Reading what an earlier `tilewright compare --format json` printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from tilewright.core.errors import ModelError
from tilewright.core.input_files import require_regular
from tilewright.core.results import CompareRow
from tilewright.report.escape import visible

_KINDS: dict[str, type] = {
    **dict.fromkeys(("model", "peer", "precision"), str),
    **dict.fromkeys(("latency_s", "peer_latency_s", "speedup"), float),
    "threads": int,
}
_BOUNDS = ("speedup_low", "speedup_high")
_HINT = "It takes what `tilewright compare … --format json` prints, or compare.json from --out."


class _Data(msgspec.Struct):
    rows: list[Any]


class _Envelope(msgspec.Struct):
    """What is around the rows of a comparison."""

    command: Literal["compare"]
    schema_version: Literal[1]
    data: _Data


def read_baseline(path: Path) -> tuple[CompareRow, ...]:
    """The rows of an earlier comparison. Raises ModelError for anything else."""
    try:
        require_regular(path)
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        rows = msgspec.convert(document, _Envelope).data.rows
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"baseline {str(path)!r} cannot be read: {reason}") from error
    except msgspec.ValidationError as error:
        raise ModelError(f"baseline {str(path)!r} holds no comparison.", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"baseline {str(path)!r} is no JSON: {error}", hint=_HINT) from error
    return tuple(_row(row, index, path) for index, row in enumerate(rows))


def _row(row: object, index: int, path: Path) -> CompareRow:
    fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    wrong = [name for name, kind in _KINDS.items() if not _is(fields.get(name), kind)]
    if wrong:
        raise ModelError(
            f"baseline {str(path)!r}, row {index}: {visible(', '.join(wrong))} missing or wrong.",
            hint=_HINT,
        )
    known: dict[str, Any] = {name: fields[name] for name in _KINDS}
    for name in _BOUNDS:  # comparisons of earlier versions have none
        if _is(fields.get(name), float) and fields[name] > 0:
            known[name] = fields[name]
    return CompareRow(**known, max_abs_error=None, max_rel_error=None)


def _is(value: Any, kind: type) -> bool:
    """Whether a value is of a kind, and finite where it is a number."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return kind is str or math.isfinite(value)

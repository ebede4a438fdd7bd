"""Reading what an earlier `tilewright compare --format json` printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

from tilewright.core.errors import ModelError
from tilewright.core.input_files import require_regular
from tilewright.core.results import CompareRow
from tilewright.report.escape import visible

_TEXTS = ("model", "peer", "precision")
_NUMBERS = ("latency_s", "peer_latency_s", "speedup")
_BOUNDS = ("speedup_low", "speedup_high")
_HINT = "It takes what `tilewright compare … --format json` prints, or compare.json from --out."


def read_baseline(path: Path) -> tuple[CompareRow, ...]:
    """The rows of an earlier comparison. Raises ModelError for anything else."""
    try:
        require_regular(path)
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"baseline {str(path)!r} cannot be read: {reason}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"baseline {str(path)!r} is no JSON: {error}", hint=_HINT) from error
    rows = _rows(document)
    if rows is None:
        raise ModelError(f"baseline {str(path)!r} holds no comparison.", hint=_HINT)
    return tuple(_row(row, index, path) for index, row in enumerate(rows))


def _rows(document: object) -> list[object] | None:
    if not isinstance(document, dict):
        return None
    envelope = cast("dict[str, object]", document)
    if envelope.get("command") != "compare" or envelope.get("schema_version") != 1:
        return None
    data = envelope.get("data")
    rows = cast("dict[str, object]", data).get("rows") if isinstance(data, dict) else None
    return cast("list[object]", rows) if isinstance(rows, list) else None


def _row(row: object, index: int, path: Path) -> CompareRow:
    fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    threads = fields.get("threads")
    wrong = [name for name in _TEXTS if not isinstance(fields.get(name), str)]
    wrong += [name for name in _NUMBERS if not _is_number(fields.get(name))]
    if not isinstance(threads, int) or isinstance(threads, bool):
        wrong.append("threads")
    if wrong:
        raise ModelError(
            f"baseline {str(path)!r}, row {index}: {visible(', '.join(wrong))} missing or wrong.",
            hint=_HINT,
        )
    return CompareRow(
        **{name: fields[name] for name in (*_TEXTS, *_NUMBERS)},
        **{name: fields[name] for name in _BOUNDS if _is_bound(fields.get(name))},
        threads=fields["threads"],
        max_abs_error=None,
        max_rel_error=None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_bound(value: object) -> bool:
    """Whether it can be a bound of a speed-up; comparisons of earlier versions have none."""
    return isinstance(value, float) and math.isfinite(value) and value > 0

"""Arrays from and to .npy files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.core.errors import ModelError, UsageError
from tilewright.core.input_files import require_regular
from tilewright.store.output import replacing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNSAFE = re.compile(r"[^A-Za-z0-9_-][^A-Za-z0-9._-]*|[^A-Za-z0-9._-]+")
_LONGEST = 100


def read_inputs(texts: Sequence[str]) -> Mapping[str, NDArray[Any]] | Sequence[NDArray[Any]]:
    """The arrays of `--input`: by name when all have one, in order when none has.

    Raises UsageError for a mixture or a name given twice, ModelError for an unreadable file.
    """
    pairs = [split_input(text) for text in texts]
    names = [name for name, _ in pairs if name is not None]
    if not names:
        return [read_array(path) for _, path in pairs]
    if len(names) < len(pairs):
        raise UsageError("Name all inputs or none: --input NAME=x.npy")
    if len(set(names)) < len(names):
        raise UsageError("--input gives one name twice.")
    return {name: read_array(path) for name, (_, path) in zip(names, pairs, strict=True)}


def split_input(text: str) -> tuple[str | None, Path]:
    """`NAME=x.npy` → name and path; names and paths may hold `=`, an existing file decides."""
    if "=" not in text or Path(text).is_file():
        return None, Path(text)
    cuts = [index for index, char in enumerate(text) if char == "=" and index]
    if not cuts:
        return None, Path(text)
    cut = next((index for index in cuts if Path(text[index + 1 :]).is_file()), cuts[0])
    return text[:cut], Path(text[cut + 1 :])


def read_array(path: Path) -> NDArray[Any]:
    """One array; files that hold Python objects are refused, as they could run code."""
    import numpy as np

    try:
        require_regular(path)
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"input {str(path)!r} cannot be read: {reason}") from error
    except (ValueError, EOFError, MemoryError, OverflowError) as error:
        raise ModelError(
            f"input {str(path)!r} is no array file: {error}",
            hint="numpy.save writes the format that is wanted here.",
        ) from error


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write one array. Raises OutputError; the file is as before then."""
    import numpy as np

    with replacing(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def file_names(names: Iterable[str]) -> list[str]:
    """A file name for each output: plain characters, never a path, none twice."""
    taken: set[str] = set()
    files: list[str] = []
    for index, name in enumerate(names):
        stem = _UNSAFE.sub("_", name).lstrip(".")[:_LONGEST] or f"output{index}"
        while stem.casefold() in taken:
            stem = f"{stem}_{index}"
        taken.add(stem.casefold())
        files.append(f"{stem}.npy")
    return files


def describe(array: NDArray[Any]) -> dict[str, Any]:
    """Shape, type and range; the range is over the finite values, None without any."""
    import numpy as np

    values = np.asarray(array)
    facts: dict[str, Any] = {"shape": list(values.shape), "dtype": str(values.dtype)}
    finite = values[np.isfinite(values)].astype(np.float64)
    some = finite.size > 0
    return {
        **facts,
        "min": float(finite.min()) if some else None,
        "max": float(finite.max()) if some else None,
        "mean": float(finite.mean()) if some else None,
        "not_finite": int(values.size - finite.size),
    }

"""What went wrong in an export, told without a traceback of ours."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb

from tilewright.models.naming import quoted

COMPANIONS = ("torchvision", "torchaudio")
"""Packages that transformers and models import where they are installed, and that fit one version
of torch alone."""
PACKAGES = ("torch", "onnxscript", "transformers", *COMPANIONS)
"""Everything that an export may import."""
_LINES = 4


def described(error: BaseException) -> str:
    """The kind of an error and the first line that it says, printable."""
    lines = _said(error)
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def where_raised(error: BaseException) -> str | None:
    """The rest of what an error says, and the place in the user's code that it comes from."""
    lines = _said(error)[1:_LINES]
    ours = (Path(__file__).parents[2], *_folder_of("torch"), _STANDARD_LIBRARY)
    frames = extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith("<")
        and not any(Path(frame.filename).is_relative_to(folder) for folder in ours)
    ]
    if theirs:
        last = theirs[-1]
        lines.append(
            f"It comes from {quoted(last.filename)}, line {last.lineno}, in {quoted(last.name)}."
        )
    return "\n".join(lines) or None


def broken_companion(error: BaseException) -> tuple[str, str] | None:
    """The package that is behind an error, and what its import says; None where none is broken."""
    told = " ".join(_chain_texts(error))
    for name, fault in load_faults([name for name in COMPANIONS if name in told]).items():
        return name, fault
    return None


def load_faults(names: Sequence[str]) -> Mapping[str, str]:
    """What is said by the imports, in this process, of those packages that are installed and do not
    load."""
    faults: dict[str, str] = {}
    for name in names:
        try:
            if find_spec(name) is not None:
                import_module(name)
        except Exception as error:  # noqa: BLE001 - a package says what it likes when it breaks
            faults[name] = described(error)
    return faults


def print_faults() -> None:
    """Write what of `PACKAGES` does not load as JSON: the part of `broken_packages` that runs in a
    process of its own."""
    with redirect_stdout(sys.stderr):
        faults = load_faults(PACKAGES)
    sys.stdout.write(json.dumps(faults))


def _said(error: BaseException) -> list[str]:
    return [quoted(line.strip())[1:-1] for line in str(error).splitlines() if line.strip(" ^~")]


def _chain_texts(error: BaseException | None) -> Iterator[str]:
    """Messages and files of an error and of those behind it."""
    while error is not None:
        yield str(error)
        yield from (frame.filename for frame in extract_tb(error.__traceback__))
        error = error.__cause__ or error.__context__


def _folder_of(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(spec.origin).parent] if spec is not None and spec.origin else []


_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


if __name__ == "__main__":
    print_faults()

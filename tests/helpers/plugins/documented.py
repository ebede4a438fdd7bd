"""The package `toys` of docs/reference/plug-ins.md, as if it were installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path

from helpers.plugins.offer import Points, offering

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "plug-ins.md"
_EXAMPLE = re.compile(r"^<!-- example: (.+?) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples() -> dict[str, str]:
    """The page's files by name."""
    return dict(_EXAMPLE.findall(PAGE.read_text()))


def points() -> Points:
    """What they announce."""
    parsed = ConfigParser()
    parsed.read_string(examples()["entry_points.txt"])
    return {group: dict(parsed[group]) for group in parsed.sections()}


@contextmanager
def toys(folder: Path) -> Generator[Path]:
    """A folder with the files, and the package offered in this process."""
    for name, text in examples().items():
        path = folder / "toys-source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.path.insert(0, str(folder / "toys-source"))
    try:
        with offering(folder, points()):
            yield folder / "toys-source"
    finally:
        sys.path.remove(str(folder / "toys-source"))
        for name in [each for each in sys.modules if each.split(".")[0] == "toys"]:
            del sys.modules[name]

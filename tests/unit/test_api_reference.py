"""docs/reference/api says what the docstrings say now, of all that packages may import."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright
from api_reference import COMMAND, FOLDER, api_pages

PLUG_INS = FOLDER.parent / "plug-ins.md"
IMPORT = re.compile(r"^`from ([\w.]+) import (\w+)`$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    return api_pages()


def test_pages_are_up_to_date(pages: dict[Path, str]) -> None:
    stale = [
        path.name
        for path, text in pages.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"{', '.join(stale)} in docs/reference/api: run `{COMMAND}`"
    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in pages}


def test_every_public_name_is_there(pages: dict[Path, str]) -> None:
    found = {f"{home}.{name}" for text in pages.values() for home, name in IMPORT.findall(text)}
    public = {f"tilewright.{name}" for name in tilewright.__all__ if name != "__version__"}
    assert public <= found
    protocols = re.findall(r"\| `(tilewright\.[\w.]+\.[A-Z]\w+)` \|", PLUG_INS.read_text())
    assert len(protocols) >= 10
    assert set(protocols) <= found


def test_everything_has_a_docstring(pages: dict[Path, str]) -> None:
    blocks = [b for text in pages.values() for b in re.split(r"^#{3,4} ", text, flags=re.M)[1:]]
    silent = [block.splitlines()[0] for block in blocks if not _said(block)]
    assert not silent


def _said(block: str) -> str:
    """What an entry says beside its name, its import and its signature."""
    _, _, rest = block.partition("\n")
    said = re.sub(r"```py\n.*?```|^`from .*?`$", "", rest, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^## .*$", "", said, flags=re.MULTILINE).strip()

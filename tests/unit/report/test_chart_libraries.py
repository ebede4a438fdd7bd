"""The script that draws charts is made once and kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import vl_convert

from tilewright.report import vega


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Which scripts were made, in an empty cache; making takes no time."""
    scripts: list[str] = []

    def make(snippet: str) -> str:
        scripts.append(snippet)
        return f"script {len(scripts)}"

    monkeypatch.setattr(vl_convert, "javascript_bundle", make)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    vega.libraries.cache_clear()
    yield scripts
    vega.libraries.cache_clear()


def in_another_process() -> str:
    vega.libraries.cache_clear()
    return str(vega.libraries())


def test_what_was_made_is_kept(made: list[str], tmp_path: Path) -> None:
    assert [in_another_process(), in_another_process()] == ["script 1"] * 2
    (kept,) = (tmp_path / "cache" / "charts").iterdir()
    assert kept.read_text() == "script 1" and len(made) == 1


def test_another_version_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    in_another_process()
    monkeypatch.setattr(vega, "version", lambda name: f"{name} 99")
    assert in_another_process() == "script 2"


def test_a_cache_that_cannot_be_used_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    assert [in_another_process(), in_another_process()] == ["script 1", "script 2"]


def test_a_broken_file_is_made_again(tmp_path: Path) -> None:
    in_another_process()
    (kept,) = (tmp_path / "cache" / "charts").iterdir()
    kept.write_bytes(b"\xff\xfe")
    assert in_another_process() == "script 2" and kept.read_text() == "script 2"

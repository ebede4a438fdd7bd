"""Models in the cache stay below a limit; what is in use stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.core.errors import UsageError
from tilewright.core.settings import CACHE_LIMIT_BYTES, read_settings
from tilewright.core.units import parse_bytes
from tilewright.models.cache import PARTIAL, cache_bytes, shrink, use

pytestmark = pytest.mark.regression


def keep(cache: Path, name: str, *, used_at: float, size_bytes: int = 1000) -> Path:
    """A model of the cache that was used at a time."""
    folder = cache / name
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(bytes(size_bytes))
    os.utime(folder, (used_at, used_at))
    return folder


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    names = ("exports/a", "downloads/b", "models/c")
    return [keep(tmp_path, name, used_at=number) for number, name in enumerate(names)]


def left(folders: list[Path]) -> list[bool]:
    return [folder.exists() for folder in folders]


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, three: list[Path]) -> None:
    assert cache_bytes(tmp_path) == 3000
    assert shrink(tmp_path, 3000).models == 0
    dropped = shrink(tmp_path, 2500)
    assert (dropped.models, dropped.freed_bytes) == (1, 1000)
    assert left(three) == [False, True, True]
    shrink(tmp_path, 0)
    assert left(three) == [False, False, False] and cache_bytes(tmp_path) == 0


def test_use_counts(tmp_path: Path, three: list[Path]) -> None:
    held = use(three[0])
    assert held is not None
    held.close()
    shrink(tmp_path, 2500)
    assert left(three) == [True, False, True]


def test_what_is_in_use_stays(tmp_path: Path, three: list[Path]) -> None:
    held = use(three[0])
    assert held is not None
    assert shrink(tmp_path, 0).models == 2
    assert left(three) == [True, False, False]
    held.close()
    assert shrink(tmp_path, 0).models == 1


def test_what_is_not_there_cannot_be_held(tmp_path: Path) -> None:
    assert use(tmp_path / "exports" / "gone") is None
    assert shrink(tmp_path / "nowhere", 0).models == 0


def test_halves_of_killed_processes_and_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "exports" / f"{PARTIAL}abcd1234.tmp").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "exports" / "file").write_text("somebody's")
    shrink(tmp_path, 0)
    assert [p.name for p in (tmp_path / "exports").iterdir()] == ["file"]
    assert (tmp_path / "notes").exists()


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0), ("500", 500), ("2GB", 2 * 10**9), ("1.5 GiB", 3 << 29), ("7kb", 7000),
        ("1TB", 10**12), ("-1", None), ("much", None), ("1e9", None), ("", None), ("2G", None),
    ],
)  # fmt: skip
def test_sizes(text: str, size_bytes: int | None) -> None:
    assert parse_bytes(text) == size_bytes


def test_the_limit_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE_LIMIT", raising=False)
    assert read_settings().cache_limit_bytes == CACHE_LIMIT_BYTES
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "20GB")
    assert read_settings().cache_limit_bytes == 20 * 10**9
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "plenty")
    with pytest.raises(UsageError, match="no size"):
        read_settings()

"""Whether a place can be written, asked before the work whose results go there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.core.errors import OutputError
from tilewright.store.output import check_place, replacing


def test_a_good_place_is_left_as_it_was(tmp_path: Path) -> None:
    check_place(tmp_path / "a" / "b" / "file")
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "kept"
    kept.write_text("as before")
    check_place(kept)
    assert kept.read_text() == "as before" and list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("place", ["file/below", "folder", "/proc/nowhere/file", "/dev/null"])
def test_a_bad_place_is_refused_as_writing_would_be(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    path = tmp_path / place
    with pytest.raises(OutputError) as asked:
        check_place(path)
    with pytest.raises(OutputError) as written, replacing(path) as temporary:
        temporary.touch()
    assert asked.value.message == written.value.message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]

"""An artifact appears complete, or what lay there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.core.errors import OutputError
from tilewright.deploy.publishing import DRAWING, FILES, MANIFEST, publish, staging

pytestmark = pytest.mark.regression


def fill(folder: Path, text: str, *, without: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if name != without:
            (folder / name).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_all_parts_take_the_place_of_the_older_ones(tmp_path: Path) -> None:
    out = fill(tmp_path / "out", "old")
    (out / "notes.txt").write_text("a person's own")
    with staging(out) as made:
        publish(fill(made / "won", "new", without=DRAWING), out)
    new = {name: "new" for name in FILES if name != DRAWING}
    assert contents(out) == {**new, "notes.txt": "a person's own"}


def test_what_lies_there_already_stays(tmp_path: Path) -> None:
    out = fill(tmp_path / "out", "old")
    publish(out, out)
    assert contents(out) == dict.fromkeys(FILES, "old")


def test_an_error_in_between_changes_nothing(tmp_path: Path) -> None:
    out = fill(tmp_path / "out", "old")
    with pytest.raises(ZeroDivisionError), staging(out) as made:
        fill(made / "won", "new")
        raise ZeroDivisionError
    assert contents(out) == dict.fromkeys(FILES, "old")


def test_what_cannot_be_completed_is_not_taken_for_complete(tmp_path: Path) -> None:
    out = fill(tmp_path / "out", "old")
    (out / "model.so").unlink()
    (out / "model.so").mkdir()
    with pytest.raises(OutputError, match="cannot write"), staging(out) as made:
        publish(fill(made / "won", "new"), out)
    assert not (out / MANIFEST).exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"), staging(tmp_path / "file" / "out"):
        pass


def test_an_output_folder_that_stays_empty_goes_with_a_failure(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for out in (tmp_path / "new" / "out", tmp_path / "mine"):
        with pytest.raises(ZeroDivisionError), staging(out) as made:
            fill(made / "won", "new")
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]

"""Which kind a file is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.records.interchange_records import version_1, version_2
from helpers.records.store_records import measurement
from tilewright.core.errors import ModelError, UsageError
from tilewright.store.database import SqliteStore
from tilewright.store.interchange.kinds import (
    EXPORTS,
    checked_kind,
    export_kind,
    import_kind,
)


@pytest.mark.parametrize("kind", [kind for kind in EXPORTS if kind != "metaschedule"])
def test_our_exports_are_known_by_their_content(
    store: SqliteStore, tmp_path: Path, kind: str
) -> None:
    store.add([measurement()])
    store.export(tmp_path / "no ending", kind)
    assert import_kind(tmp_path / "no ending", None) == kind
    assert store.import_file(tmp_path / "no ending").known == 1


def test_foreign_files_are_known_by_their_content(store: SqliteStore, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for text, kind in (
        (version_1(), "autotvm"),
        (version_2() + "\nrest", "autotvm"),
        ('{\n "results": []}', "t4"),
        ('[0, [[], [0.1], {"kind": "llvm"}, []]]', "metaschedule"),
    ):
        path.write_text(text)
        assert import_kind(path, None) == kind
    assert import_kind(store.path, None) == "db"
    folder = tmp_path / "work_dir"
    folder.mkdir()
    (folder / "database_tuning_record.json").write_text("")
    assert import_kind(folder, None) == "metaschedule"


def test_the_ending_counts_where_the_content_tells_nothing(tmp_path: Path) -> None:
    for name, kind in (("a.log", "autotvm"), ("a.jsonl", "jsonl"), ("a.csv", "csv")):
        (tmp_path / name).write_text(version_1()[:50])
        assert import_kind(tmp_path / name, None) == kind
    (tmp_path / "a.txt").write_text("what is this")
    with pytest.raises(UsageError, match=r"a\.txt") as caught:
        import_kind(tmp_path / "a.txt", None)
    assert "--kind" in (caught.value.hint or "")


def test_unknown_kinds_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        checked_kind("auto-tvm", EXPORTS)
    assert "autotvm" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="Cannot tell"):
        export_kind(tmp_path / "a.txt", None)
    with pytest.raises(UsageError, match="no kind 'db'"):
        export_kind(tmp_path / "a.txt", "db")
    for missing in (tmp_path / "none.log", tmp_path):
        with pytest.raises(ModelError, match="cannot be read"):
            import_kind(missing, None)


def test_a_kind_given_wins(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(version_1())
    assert store.import_file(tmp_path / "a.jsonl", "autotvm").imported == 1
    with pytest.raises(ModelError, match="header is missing"):
        store.import_file(tmp_path / "a.jsonl", "jsonl")

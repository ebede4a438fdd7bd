"""Test files are translated ahead without being run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.processes.rewritten_ahead import files_in, rewrite, rewrite_ahead

BODY = '"""Text."""\nfrom pathlib import Path\n\nPath({seen!r}).touch()\nassert 1 + 1 == 2\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    found = tmp_path / "room" / "test_translated_only.py"
    found.parent.mkdir()
    found.write_text(BODY.format(seen=str(tmp_path / "seen")))
    return found


def kept(file: Path) -> list[Path]:
    """What pytest kept of a file."""
    return list(file.parent.rglob("*-pytest-*.pyc"))


def test_a_file_is_kept_and_not_run(file: Path, tmp_path: Path) -> None:
    rewrite(file)
    assert kept(file) and not (tmp_path / "seen").exists()
    assert file.stem not in sys.modules


def test_a_broken_file_is_left_to_who_runs_it(file: Path) -> None:
    file.write_text("def test_(:\n")
    rewrite(file)
    assert not kept(file)


@pytest.mark.parametrize(("worker", "works"), [("gw0", False), ("gw1", True), (None, False)])
def test_all_workers_but_the_first_do_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, worker: str | None, works: bool
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if worker:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    rewrite_ahead(["room"], file.parents[1])
    assert bool(kept(file)) == works


def test_places_are_folders_files_and_tests(file: Path) -> None:
    root = file.parents[1]
    assert files_in(["room"], root) == files_in([f"{file}::test_one[a]"], root) == [file]

"""Folders that go with their process, however it ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.core.errors import OutputError
from tilewright.core.scratch import (
    FolderInUse,
    PrivateFolder,
    remove_leftovers,
    remove_unused,
    scratch_folder,
)

pytestmark = pytest.mark.regression

OWNER = """
import sys
from pathlib import Path
from tilewright.core.scratch import PrivateFolder
folder = PrivateFolder(Path(sys.argv[1]), "part-")
(folder.path / "half").write_text("made")
print(folder.path, flush=True)
sys.stdin.read()
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder in `parent` and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_gone_after_the_block_and_with_the_object(tmp_path: Path) -> None:
    with PrivateFolder(tmp_path / "new", "part-") as folder:
        (folder / "deep").mkdir()
        assert folder.parent == tmp_path / "new"
    kept = PrivateFolder(tmp_path / "new", "part-")
    assert kept.path.is_dir()
    del kept
    gc.collect()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_killed_owner_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    process, left = owner(tmp_path)
    with PrivateFolder(tmp_path, "part-"):
        assert (left / "half").exists(), "its owner lives"
    process.kill()
    process.communicate()
    assert left.exists()
    with PrivateFolder(tmp_path, "part-") as folder:
        assert [p for p in tmp_path.iterdir()] == [folder]


def test_an_owner_that_ends_leaves_nothing(tmp_path: Path) -> None:
    process, _ = owner(tmp_path)
    process.communicate("")
    assert list(tmp_path.iterdir()) == []


def test_what_others_made_stays(tmp_path: Path) -> None:
    names = ["part-mine", "part-abcdefgh", "part-ABCDEFGH.tmp", "xpart-abcdefgh.tmp"]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "part-abcdefgh.tmp").symlink_to(tmp_path / "part-mine")
    remove_leftovers(tmp_path, "part-")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*names, "part-abcdefgh.tmp"])


def test_many_at_once_never_take_each_others(tmp_path: Path) -> None:
    def make(number: int) -> bool:
        with PrivateFolder(tmp_path, "part-") as folder:
            (folder / str(number)).touch()
            return (folder / str(number)).exists()

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(make, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_leaves_it_to_its_parent(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path, "part-")
    pid = os.fork()
    if pid == 0:
        folder.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert folder.path.is_dir()
    folder.close()
    assert not folder.path.exists()


def test_no_temporary_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(OutputError, match="temporary folder") as caught:
        scratch_folder()
    assert "TMPDIR" in str(caught.value)


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "used"
    folder.mkdir()
    with FolderInUse(folder) as one, FolderInUse(folder) as other:
        assert one.taken and other.taken
        assert not remove_unused(folder)
    assert remove_unused(folder)
    assert not folder.exists()
    assert not FolderInUse(folder).taken


def test_the_hold_of_a_killed_process_ends(tmp_path: Path) -> None:
    process, folder = owner(tmp_path)
    assert not remove_unused(folder)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert remove_unused(folder)

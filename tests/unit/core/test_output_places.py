"""Whether a place can be written, asked before the work whose results go there."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.flags import AnswerFlags
from tilewright.cli.output import Answer, keep
from tilewright.cli.run import write_array
from tilewright.core.errors import OutputError, reason_of
from tilewright.core.output_files import check_place, replacing
from tilewright.report.tables import Table


@pytest.fixture
def little_room() -> Generator[None]:
    """Files of 4 KiB at most, as on a disk that fills up."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


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


@pytest.mark.regression
@pytest.mark.usefixtures("little_room")
def test_an_array_without_room_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left on device") as caught:
        write_array(tmp_path / "new" / "outputs" / "y.npy", np.ones(10_000, np.float32))
    assert "room" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "y.npy").write_text("as before")
    with pytest.raises(OutputError, match="y.npy"):
        write_array(tmp_path / "y.npy", np.ones(10_000, np.float32))
    assert (tmp_path / "y.npy").read_text() == "as before"
    assert list(tmp_path.iterdir()) == [tmp_path / "y.npy"]


@pytest.mark.regression
@pytest.mark.usefixtures("little_room")
def test_an_answer_without_room_leaves_nothing(tmp_path: Path) -> None:
    answer = Answer(command="predict", data="x" * 10_000, rows=Table(columns=(), records=()))
    with pytest.raises(OutputError, match="File too large") as caught:
        keep(answer, AnswerFlags(out=tmp_path / "new"))
    assert "room" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.regression
def test_a_full_disk_is_told_in_words() -> None:
    full = os.strerror(errno.ENOSPC)
    assert reason_of(OSError("401408 requested and 262112 written")) == full
    assert reason_of(OSError(errno.ENOSPC, full)) == full
    assert reason_of(OSError("unsupported operation")) == "unsupported operation"

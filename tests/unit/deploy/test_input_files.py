"""Every kind of file that a person names is looked at before it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli.compare import read_baseline
from tilewright.cli.run import read_array
from tilewright.core.errors import ModelError
from tilewright.core.input_files import require_regular
from tilewright.deploy.manifest import MANIFEST, read_manifest
from tilewright.models.loading import load
from tilewright.plan.assignment.problem_file import read_problem
from tilewright.predict.base import read_datasheets
from tilewright.predict.tables import read_table
from tilewright.search.sweeps.sweep import read_sweeps
from tilewright.store.interchange.kinds import import_kind

pytestmark = pytest.mark.regression

READERS: dict[str, Callable[[Path], Any]] = {
    "net.onnx": lambda path: load(str(path)),
    "net": lambda path: load(str(path)),
    "net.pt2": lambda path: load(str(path)),
    "x.npy": read_array,
    "compare.json": read_baseline,
    "devices.json": read_datasheets,
    "table.csv": read_table,
    "table.parquet": read_table,
    "problem.json": read_problem,
    "sweep.json": read_sweeps,
    "knobs.parquet": read_sweeps,
    "log.json": lambda path: import_kind(path, None),
    MANIFEST: lambda path: read_manifest(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_devices_are_not_read(tmp_path: Path, name: str) -> None:
    # /dev/null ends at once, so that this ends where nobody looks
    (tmp_path / name).symlink_to(os.devnull)
    with pytest.raises(
        ModelError, match="is a device(, not a regular file| or a pipe, not a file)"
    ) as caught:
        READERS[name](tmp_path / name)
    assert caught.value.exit_code == 4


def test_what_is_no_regular_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path / "pipe", "a named pipe"), (tmp_path, "a folder")):
        with pytest.raises(ModelError, match=f"is {words}, not a regular file"):
            require_regular(path)
    with pytest.raises(FileNotFoundError):
        require_regular(tmp_path / "nothing")


def test_sizes_are_looked_at_first(tmp_path: Path) -> None:
    path = tmp_path / "holes"
    path.touch()
    assert require_regular(path) == 0
    os.truncate(path, 1 << 42)  # takes no disk
    with pytest.raises(ModelError, match=r"4096 GiB; at most"):
        require_regular(path)
    with pytest.raises(ModelError, match=r"at most 1 KiB"):
        require_regular(path, limit_bytes=1024)

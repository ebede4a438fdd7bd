"""`optimize` under Ctrl-C, kill -9, full disks, and beside itself."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from helpers.commands.command_line import (
    ALL,
    answer,
    call,
    know_machine,
    on_cores,
    rows,
    run,
    small_model,
    start,
    succeed,
)
from helpers.commands.started_commands import Started
from helpers.plugins.offer import offered
from tilewright.core import output_files
from tilewright.session import opened
from tilewright.store import open_store

SPENT = 4
"""Candidates that the network in `finished` was made of."""
WORDS = ("optimize", "net.onnx", "--budget", "400", "--out", "out", "--format", "json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_model(tmp_path / "net.onnx", filters=(16,), extent=16)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few candidates measured and the network in `out`; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    small_model(folder / "net.onnx", filters=(16,), extent=16)
    succeed(folder, "optimize", "net.onnx", "--budget", SPENT, "--out", "out")
    return folder


@pytest.fixture
def shipped(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path, dirs_exist_ok=True))


def wait_for_rows(folder: Path, process: Started | subprocess.Popen[str], least: int) -> int:
    """Until that many rows are in the database; fails if the process ends before."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = rows(folder)
        if found >= least:
            return found
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("nothing was measured")


def children_of(process: Started | subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.fixture
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of commands."""
    place = folder / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def ours(temporary: Path) -> list[Path]:
    """Folders of tilewright, of TVM and of the compilers; ONNX Runtime has a file of its own."""
    return [path for path in temporary.iterdir() if path.name != ".ses"]


@pytest.mark.slow
def test_killed_in_the_middle_the_command_goes_on(folder: Path, temporary: Path) -> None:
    process = start(folder, *WORDS)
    acknowledged = wait_for_rows(folder, process, 2)
    workers = children_of(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive, "workers must die with their parent"
    assert ours(temporary), "a process that is killed cannot clean up behind itself"
    kept = rows(folder)
    assert kept >= acknowledged
    assert not (folder / "out" / "manifest.json").exists()
    again = succeed(folder, "optimize", "net.onnx", "--budget", kept + 1, "--out", "out")
    assert rows(folder) == kept + again["measurements"] + again["failures"]
    assert (folder / "out" / "manifest.json").exists()
    assert ours(temporary) == []


@pytest.mark.slow
def test_killed_while_it_ships(shipped: Path) -> None:
    folder = shipped
    before = (folder / "out" / "manifest.json").read_bytes()
    process = start(folder, "optimize", "net.onnx", "--budget", SPENT, "--out", "out")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list((folder / "out").glob(".staging-*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert (folder / "out" / "manifest.json").read_bytes() == before
    data = succeed(folder, "optimize", "net.onnx", "--budget", SPENT, "--out", "out")
    assert data["measurements"] == 0
    assert {p.name for p in (folder / "out").iterdir()} == {
        "model.so", "weights.params", "manifest.json", "report.html", "layouts.onnx"
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_how_to_go_on(folder: Path, temporary: Path, number: int) -> None:
    process = start(folder, *WORDS, cold=number == signal.SIGINT)
    wait_for_rows(folder, process, 1)
    if number == signal.SIGTERM:  # as schedulers and service managers send it: to all
        for worker in children_of(process):
            worker.send_signal(number)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out == ""
    assert "tilewright optimize net.onnx --budget 400" in err
    assert "Traceback" not in err
    connection = sqlite3.connect(folder / "tilewright.db")
    states = connection.execute("SELECT state, measurements, failures FROM runs").fetchall()
    connection.close()
    assert ours(temporary) == []
    assert states == [("interrupted", *states[0][1:])]
    assert states[0][1] + states[0][2] == rows(folder) > 0


def test_interrupted_twice_it_ends_at_once(folder: Path) -> None:
    process = start(folder, *WORDS)
    wait_for_rows(folder, process, 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a network of one task."""
    small_model(tmp_path / "net.onnx", filters=(8,), extent=8)
    return tmp_path


def test_two_at_once_share_the_database(tmp_path: Path) -> None:
    """Each on a core of its own, where there are two."""
    folder, model = tmp_path, "op:dense[m=4,k=16,n=16]"
    words = ("optimize", model, "--budget", "2", "--format", "json")
    both, results = [], []
    for number, core in enumerate([min(ALL), max(ALL)]):
        with on_cores({core}):
            both.append(start(folder, *words, "--out", f"out{number}"))
    for process in both:
        out, err = process.communicate(timeout=280)
        assert process.returncode == 0, err
        results.append(json.loads(out)["data"])
    made = sum(r["measurements"] + r["failures"] for r in results)
    assert rows(folder) == made > 0
    for number in range(2):
        assert (folder / f"out{number}" / "model.so").exists()


def limited(size_bytes: int):
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    return limit


@pytest.fixture
def full_disk(tmp_path: Path):
    """A file system of 16 KiB; skipped where it may not be mounted."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_for_the_artifact(tiny: Path, full_disk: Path) -> None:
    words = ("optimize", "net.onnx", "--budget", "2", "--out")
    done = run(tiny, *words, full_disk / "out")
    assert done.code == 4, done.err
    assert "No space left" in done.err and "Traceback" not in done.err
    assert rows(tiny) == 2
    again = answer(tiny, *words, "out")
    assert again["measurements"] + again["failures"] == 0


def test_a_file_size_limit_for_the_artifact(shipped: Path) -> None:
    """The database and the model fit into the limit; the weights, filled up to whole blocks of
    channels, do not."""
    folder = shipped
    small_model(folder / "wide.onnx", filters=(40, 40, 40), extent=8)
    kept = {p.name: p.read_bytes() for p in (folder / "out").iterdir()}
    done = run(
        folder, "optimize", "wide.onnx", "--budget", "0", "--out", "out", before=limited(143_360)
    )
    assert done.code == 4, done.err
    assert "cannot write the compiled network" in done.err and "Traceback" not in done.err
    assert {p.name: p.read_bytes() for p in (folder / "out").iterdir()} == kept
    assert rows(folder) == SPENT


def test_a_disk_that_fills_up_at_the_end(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report comes last: neither it nor what was made before takes an old file's place."""

    flush = output_files.flush_to_disk

    def full(path: Path) -> None:
        if "report.html" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(path)

    monkeypatch.setattr(output_files, "flush_to_disk", full)
    kept = {p.name: p.read_bytes() for p in (shipped / "out").iterdir()}
    small_model(shipped / "other.onnx", filters=(16, 32), extent=16)
    done = call(shipped, "optimize", "other.onnx", "--budget", "0", "--out", "out")
    assert done.code == 4, done.err
    assert "report.html cannot be written: No space left" in done.err
    assert {p.name: p.read_bytes() for p in (shipped / "out").iterdir()} == kept


@pytest.mark.parametrize("place", ["file/out", "file"])
def test_no_place_for_the_artifact(folder: Path, place: str) -> None:
    (folder / "file").write_text("in the way")
    done = call(folder, "optimize", "net.onnx", "--budget", "0", "--out", place)
    assert done.code == 4, done.err
    assert "cannot" in done.err and "Traceback" not in done.err
    assert (folder / "file").read_text() == "in the way"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_for_the_artifact(folder: Path) -> None:
    (folder / "shut").mkdir(mode=0o500)
    done = run(folder, "optimize", "net.onnx", "--budget", "0", "--out", "shut/out")
    assert done.code == 4, done.err


def test_databases_that_cannot_be_used(folder: Path) -> None:
    words = ("optimize", "net.onnx", "--budget", "0", "--db")
    foreign = folder / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    (folder / "text.db").write_text("no database at all, " * 100)
    for name, what in (("foreign.db", "another program"), ("text.db", "text.db"), (".", "folder")):
        before = (folder / name).read_bytes() if name != "." else b""
        done = call(folder, *words, name)
        assert done.code == 5, done.err
        assert what in done.err and "Traceback" not in done.err
        assert name == "." or (folder / name).read_bytes() == before


@pytest.mark.slow
def test_a_newer_and_a_locked_database(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "open_store", partial(open_store, busy_timeout_s=1.0))
    path = folder / "tilewright.db"
    know_machine(path)
    shutil.copy(path, folder / "newer.db")
    connection = sqlite3.connect(folder / "newer.db")
    connection.execute("UPDATE meta SET value = '999' WHERE name = 'schema_version'")
    connection.commit()
    connection.close()
    done = call(folder, "optimize", "net.onnx", "--budget", "0", "--db", "newer.db")
    assert done.code == 5 and "newer" in done.err, done.err
    holder = sqlite3.connect(path)
    holder.execute("BEGIN EXCLUSIVE")
    done = call(folder, "optimize", "net.onnx", "--budget", "0")
    holder.rollback()
    holder.close()
    assert done.code == 5 and "locked" in done.err, done.err
    assert "Traceback" not in done.err


def test_a_wrong_kernel_is_refused_and_named(shipped: Path, tmp_path: Path) -> None:
    small_model(tmp_path / "net.onnx", filters=(16, 48, 16, 16))
    words = ("optimize", "net.onnx", "--budget", "0", "--out", "out", "--max-error", "1e-3")
    kept = {p.name: p.read_bytes() for p in (shipped / "out").iterdir()}
    site = offered(tmp_path / "site", "mispacked")
    done = run(tmp_path, *words, "--db", "other.db", search_path=site)
    assert done.code == 1, done.err
    assert "conv1" in done.err and "Nothing was shipped" in done.err
    assert "'conv2'" not in done.err and "'conv0'" not in done.err
    assert "Traceback" not in done.err
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == kept

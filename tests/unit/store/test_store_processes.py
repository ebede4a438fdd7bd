"""Several processes on one database, and processes that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from helpers.processes.forking import in_child
from helpers.records.store_records import CPU_A, failures, measurement, measurements
from tilewright.store import open_store

WRITER = """
import sys
from pathlib import Path
from helpers.records.store_records import failure, measurement
from tilewright.store import open_store
path, name, limit = sys.argv[1:]
with open_store(Path(path)) as store:
    print("open", flush=True)
    sys.stdin.readline()
    for number in range(int(limit)):
        store.add([measurement(number=number, versions=name), failure(number=number)])
        print(number, flush=True)
"""


def start_writer(path: Path, *, name: str, limit: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(limit)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_every_acknowledged_row_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    acknowledged: dict[str, int] = {}
    for name, rows in (("first", 1), ("second", 7), ("third", 40)):
        writer = start_writer(path, name=name, limit=100_000)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "open\n"
        for _ in range(rows):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        acknowledged[name] = rows + len(writer.stdout.read().split("\n")) - 1
        writer.wait(timeout=10)
        writer.stdin.close()
        writer.stdout.close()
        with open_store(path) as store:
            known = measurements(store, "conv2d-1", CPU_A)
            failed = failures(store, "conv2d-1", CPU_A)
        for writer_name, count in acknowledged.items():
            numbers = [m.created_at for m in known if m.versions == writer_name]
            assert numbers == [float(n) for n in range(len(numbers))]
            assert count <= len(numbers) <= count + 1
        assert len(failed) == len(known)


def test_two_processes_create_and_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.db"
    writers = [start_writer(path, name=name, limit=60) for name in ("a", "b")]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        output, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        assert output.split() == ["open", *map(str, range(60))]
    with open_store(path) as store:
        known = measurements(store, "conv2d-1", CPU_A)
        assert store.info().failures == 120
    for name in ("a", "b"):
        assert [m.created_at for m in known if m.versions == name] == list(range(60))


def test_opening_imports_sqlalchemy_late() -> None:
    code = "import sys, tilewright.store; assert not {'sqlalchemy', 'polars'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_store_goes_on_in_a_forked_process(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path) as store:
        store.add([measurement(number=0)])

        def child() -> None:
            open_files = {os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()}
            assert not [name for name in open_files if name.startswith(str(path.resolve()))]
            store.add([measurement(number=1)])
            assert len(measurements(store, "conv2d-1", CPU_A)) == 2

        in_child(child)
        store.add([measurement(number=2)])
        known = measurements(store, "conv2d-1", CPU_A)
    assert sorted(m.created_at for m in known) == [0, 1, 2]

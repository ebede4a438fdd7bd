"""Running the command line as a person would, in a process of its own."""

from __future__ import annotations

import filecmp
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import helper, numpy_helper

from helpers.commands.started_commands import Started
from helpers.commands.warm_commands import warm
from tilewright.cli.main import main
from tilewright.hardware.device import local_placement
from tilewright.hardware.probe import process_affinity
from tilewright.store import open_store

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """`data` of the json envelope; the envelope itself is checked."""
        message = json.loads(self.out)
        assert message["schema_version"] == 1
        assert set(message) == {"schema_version", "command", "data", "warnings"}
        return message["data"]


def arguments_of(*words: object) -> list[str]:
    return [sys.executable, "-m", "tilewright", *map(str, words)]


PEAKS = {"flop_per_s": 1e11, "bytes_per_s": 2e10, "cache_bytes_per_s": 1e11}
"""About what one core reaches: commands that measure look again, and keep the larger."""


def _known_machine() -> Path:
    """A database that knows peaks of the cores in use and nothing else."""
    return _made_machine(process_affinity())


@cache
def _made_machine(_cores: frozenset[int]) -> Path:
    path = Path(tempfile.mkdtemp(prefix="tilewright-tests-")) / "tilewright.db"
    placement = local_placement()
    with open_store(path) as store:
        store.add_device(placement.device)
        for name, value in PEAKS.items():
            store.add_peak(placement.key, name, value)
    return path


def know_machine(database: Path) -> None:
    """Make a database that knows this machine, unless there is one."""
    if not database.exists():
        shutil.copy(_known_machine(), database)


def _forget_untouched(database: Path) -> None:
    """Remove a database that still is as `know_machine` made it."""
    if database.exists() and filecmp.cmp(database, _known_machine(), shallow=False):
        database.unlink()


ALL = os.sched_getaffinity(0)
_cores: set[int] = set()


def keep_to(cores: set[int]) -> None:
    """Commands start on these cores, also after TVM moved this thread, as it may when a network is
    loaded in this process. Those that run in this process take them for its own, too."""
    _cores.clear()
    _cores.update(cores)
    os.sched_setaffinity(0, cores)
    process_affinity.cache_clear()
    process_affinity()


@contextmanager
def on_all_cores() -> Iterator[None]:
    """Commands inside the block start on all cores of this process, and not on its share."""
    with on_cores(ALL):
        yield


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Commands inside the block start on these cores."""
    before = set(_cores)
    keep_to(cores)
    try:
        yield
    finally:
        keep_to(before or ALL)


def environment(folder: Path, search_path: Sequence[str] = ()) -> dict[str, str]:
    """Ours, with a database inside `folder` and more places to import from.

    A new database knows the machine's peaks.
    """
    if _cores:
        os.sched_setaffinity(0, _cores)
    know_machine(folder / "tilewright.db")
    known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    joined = os.pathsep.join([*search_path, *known])
    return {**os.environ, "TILEWRIGHT_DB": str(folder / "tilewright.db"), "PYTHONPATH": joined}


def run(
    folder: Path,
    *words: object,
    search_path: Sequence[str] = (),
    before: Callable[[], None] | None = None,
) -> Done:
    """`tilewright WORDS…` in `folder`: started from nothing where packages of `search_path` are to
    be found, or `before` is to be called, else as a fork of a process that has imported all."""
    known = environment(folder, search_path)
    if before is None and not search_path:
        code, out, err = warm(folder, known, words=[*map(str, words)])
        _forget_untouched(folder / "tilewright.db")
        return Done(code=code, out=out, err=err)
    ended = subprocess.run(
        arguments_of(*words),
        cwd=folder,
        env=known,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        preexec_fn=before,
    )
    _forget_untouched(folder / "tilewright.db")
    return Done(code=ended.returncode, out=ended.stdout, err=ended.stderr)


def call(folder: Path, *words: object) -> Done:
    """`tilewright WORDS…` in this process: for what ends soon, and for what a test replaces."""
    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(folder),
        mock.patch.dict(os.environ, environment(folder)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main([str(word) for word in words])
    _forget_untouched(folder / "tilewright.db")
    return Done(code=code, out=out.getvalue(), err=err.getvalue())


def succeed(folder: Path, *words: object, search_path: Sequence[str] = ()) -> dict[str, Any]:
    """`data` of a command that must end well."""
    done = run(folder, *words, "--format", "json", search_path=search_path)
    assert done.code == 0, done.err
    return done.data


def answer(folder: Path, *words: object) -> dict[str, Any]:
    """As `succeed`, in this process."""
    done = call(folder, *words, "--format", "json")
    assert done.code == 0, done.err
    return done.data


def start(folder: Path, *words: object, cold: bool = False) -> Started | subprocess.Popen[str]:
    """A command that goes on in a process group of its own, started from nothing where `cold`."""
    known = environment(folder)
    if not cold:
        return Started(folder, known, [*map(str, words)])
    return subprocess.Popen(
        arguments_of(*words),
        cwd=folder,
        env=known,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )


def _heed_interrupts() -> None:
    """As in a terminal, also where the tests run in the background and were told to ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def rows(folder: Path) -> int:
    """Candidate rows in the folder's database, read without tilewright."""
    import sqlite3

    path = folder / "tilewright.db"
    if not path.exists():
        return 0
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not {"measurements", "failures"} <= tables:
            return 0
        counts = [
            connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for table in ("measurements", "failures")
        ]
        return sum(counts)
    finally:
        connection.close()


def small_model(
    path: Path,
    *,
    filters: Sequence[int] = (8, 16),
    extent: int = 12,
    names: Mapping[str, str] | None = None,
) -> Path:
    """A few 3×3 convolutions with relu; `names` replaces names of tensors and nodes."""
    rng = np.random.default_rng(0)
    nodes, constants, channels, current = [], [], 3, "x"
    for number, count in enumerate(filters):
        weight = rng.standard_normal((count, channels, 3, 3)).astype(np.float32) / (3 * channels)
        constants.append(numpy_helper.from_array(weight, f"w{number}"))
        made = f"c{number}"
        nodes.append(
            helper.make_node(
                "Conv", [current, f"w{number}"], [made], name=f"conv{number}", pads=[1] * 4
            )
        )
        current = f"r{number}" if number + 1 < len(filters) else "y"
        nodes.append(helper.make_node("Relu", [made], [current], name=f"relu{number}"))
        channels = count
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, extent, extent])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, channels, extent, extent])],
        constants,
    )
    renamed(graph, names or {})
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def optimize_small_model(folder: Path) -> None:
    """`net.onnx` in the folder, and in `out` what was compiled of it with default settings."""
    small_model(folder / "net.onnx")
    succeed(folder, "optimize", "net.onnx", "--budget", "0", "--out", "out")


def renamed(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        for ports in (node.input, node.output):
            ports[:] = [names.get(name, name) for name in ports]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)


def reference(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs by name."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))

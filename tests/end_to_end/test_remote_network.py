"""A network for a board from `optimize` to `compare`, over RPC on loopback."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright
from helpers.commands.command_line import (
    Done,
    environment,
    reference,
    rows,
    run,
    small_model,
    start,
    succeed,
)
from helpers.commands.started_commands import Started
from helpers.processes.rpc_processes import Farm, farm

BUDGET = "3"


@pytest.fixture(scope="module")
def boards() -> Iterator[Farm]:
    """A tracker with one stock server, of the key `box`, with the one core of this process."""
    with farm(1, threads=1) as found:
        yield found


@pytest.fixture(scope="module")
def shipped(boards: Farm, tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A folder with a model, an input, and what was shipped for the board."""
    found = with_model(tmp_path_factory.mktemp("board"))
    succeed(found, *optimizing(boards))
    return found


def with_model(folder: Path) -> Path:
    """The folder with a model and an input in it."""
    small_model(folder / "net.onnx", filters=(8,), extent=8)
    given = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(folder / "x.npy", given)
    return folder


def there(boards: Farm, key: str = "box") -> tuple[str, ...]:
    return ("--target", f"rpc:{key}", "--tracker", boards.address)


def optimizing(boards: Farm, *more: str) -> tuple[str, ...]:
    return ("optimize", "net.onnx", *there(boards), "--budget", BUDGET, "--out", "out", *more)


def wait_for(process: Started | subprocess.Popen[str], words: str) -> None:
    """Until the command says so on stderr."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return
    raise AssertionError(said)


def states(folder: Path) -> list[str]:
    connection = sqlite3.connect(folder / "tilewright.db")
    try:
        return [state for (state,) in connection.execute("SELECT state FROM runs ORDER BY id")]
    finally:
        connection.close()


@pytest.fixture(scope="module")
def lost(boards: Farm, tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A folder in which the board was lost in the middle of a race; another one is there now."""
    folder = with_model(tmp_path_factory.mktemp("lost"))
    process = start(folder, *optimizing(boards))
    wait_for(process, "compare: ")
    boards.servers[-1].kill()
    out, err = process.communicate(timeout=120)
    boards.add(threads=1)
    assert process.returncode == 3, err
    assert out == "" and "was lost at" in err and "Traceback" not in err
    assert "the same command" in err
    return folder


def test_a_board_the_tracker_does_not_know(boards: Farm, tmp_path: Path) -> None:
    refused = run(with_model(tmp_path), "optimize", "net.onnx", *there(boards, "bax"))
    assert refused.code == 3 and "knows no device" in refused.err and "box" in refused.err
    assert not (tmp_path / "tilewright-out").exists()


@pytest.mark.slow
def test_a_board_killed_in_the_middle_of_a_race_costs_nothing(boards: Farm, lost: Path) -> None:
    known = rows(lost)
    assert known > 0 and states(lost) == ["interrupted"]
    assert not (lost / "out" / "manifest.json").exists()
    assert not list(lost.glob("out/*")) and not list(lost.glob("**/.staging-*"))
    data = succeed(lost, *optimizing(boards))
    assert data["measurements"] == data["failures"] == 0 and rows(lost) == known
    assert data["reference_latency_s"] is None and data["speedup_vs_reference"] is None
    assert "board_server" in data["reference_untimed"] and data["latency_s"] > 0
    assert data["max_rel_error"] < 1e-4 and data["baseline_latency_s"] > 0
    manifest = json.loads((lost / "out" / "manifest.json").read_text())
    assert manifest["result"]["reference_latency_s"] is None
    assert all(task["in_place_s"] for task in data["tasks"])


@pytest.mark.slow
def test_what_shipped_runs_there_and_here(boards: Farm, shipped: Path) -> None:
    wanted = reference(shipped / "net.onnx", {"x": np.load(shipped / "x.npy")})["y"]
    ran = succeed(shipped, "run", "out", "--input", "x.npy", "--out", "there", *there(boards))
    (output,) = ran["outputs"]
    found = np.load(shipped / output["file"])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    # the board is this machine: what was made for it loads here, too
    np.testing.assert_array_equal(
        tilewright.load(shipped / "out")(np.load(shipped / "x.npy")), found
    )


@pytest.mark.slow
def test_what_shipped_is_profiled_there(boards: Farm, shipped: Path) -> None:
    profile = succeed(shipped, "profile", "out", "--memory", *there(boards))
    assert profile["network_latency_s"] > 0 and profile["memory"]["measured_bytes"] is None
    assert "does not tell" in profile["memory"]["reason"]
    assert all(task["in_place_s"] for task in profile["tasks"])


@pytest.mark.slow
def test_no_meter_of_this_machine_reads_a_board(boards: Farm, shipped: Path) -> None:
    metered = run(shipped, "profile", "out", "--power", *there(boards))
    assert metered.code == 2 and "meter of this machine" in metered.err


@pytest.mark.slow
def test_a_stock_server_has_no_peers(boards: Farm, shipped: Path) -> None:
    refused = run(shipped, "compare", "out", *there(boards))
    assert refused.code == 3 and "tilewright.measure.board_server" in refused.err


@pytest.mark.slow
def test_a_board_with_tilewright_has_peers(boards: Farm, shipped: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--host", "127.0.0.1", "--port", port, "--port-end", port + 1, "--silent"]
    command = [sys.executable, "-m", "tilewright.measure.board_server", *map(str, words)]
    server = subprocess.Popen(
        [*command, "--tracker", boards.address, "--key", "peers"],
        env={**environment(shipped), "TVM_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        done = compared(shipped, boards, server)
        assert done.code == 0, done.err
        (row,) = done.data["rows"]
        assert row["peer"] == "onnxruntime" and row["peer_latency_s"] > 0
        assert row["max_rel_error"] < 1e-4 and row["threads"] == 1
    finally:
        server.kill()
        server.wait()


def compared(folder: Path, boards: Farm, server: subprocess.Popen[bytes]) -> Done:
    """`compare` once the tracker knows the server."""
    words = ("compare", "out", "--peers", "onnxruntime", "--format", "json")
    while True:
        done = run(folder, *words, *there(boards, "peers"))
        assert server.poll() is None
        if "knows no device" not in done.err:
            return done


def test_an_artifact_for_another_processor_is_refused(boards: Farm, shipped: Path) -> None:
    target = 'rpc:box={"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v2"}'
    for words in (("run", "out", "--input", "x.npy"), ("compare", "out")):
        refused = run(shipped, *words, "--target", target, "--tracker", boards.address)
        assert refused.code == 3 and "compiled for" in refused.err and "lacks" in refused.err

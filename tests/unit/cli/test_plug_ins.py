"""What other packages offer, at the real command line: the toys of the documentation, a store in a
text file, and packages that are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.plugins.documented import toys
from helpers.plugins.offer import Points, offered, offering
from helpers.scheduling import random_problem
from tilewright.cli.main import main
from tilewright.hardware.meters import energy
from tilewright.measure import circumstances
from tilewright.plan.assignment.problem_file import write_problem
from tilewright.plan.scheduling import problem_file as scheduling
from tilewright.session import Session
from tilewright.testing.solvers import chain

MLP = ("zoo:mlp", "--target", "simulated", "--threads", "1")
BROKEN = {
    "tilewright.meters": ("meter", ("profile", *MLP, "--power", "--meter", "broken:1"), 3),
    "tilewright.peers": ("peer", ("compare", *MLP, "--peers", "broken"), 3),
    "tilewright.solvers": ("solver", ("solve", "problem.json", "--solver", "broken"), 3),
    "tilewright.schedulers": (
        "planner of schedules",
        ("plan", "schedule.json", "--planner", "broken"),
        3,
    ),
    "tilewright.planners": ("planner", ("tune", *MLP, "--level", "graph", "--solver", "broken"), 3),
    "tilewright.stores": ("store", ("predict", *MLP, "--db", "broken:x"), 5),
    "tilewright.tuners": ("tuner", ("tune", *MLP, "--tuner", "broken"), 3),
}
BY_GROUP = pytest.mark.parametrize("group", BROKEN)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)["data"]


Command = Callable[..., Ran]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run one command line in an empty folder, with a database of its own and without colours."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TILEWRIGHT_DB", str(work / "a.db"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write_problem(chain(12), work / "problem.json")
    scheduling.write_problem(random_problem(1), work / "schedule.json")

    def run(*tokens: str) -> Ran:
        code = main(tokens)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def installed(tmp_path: Path) -> Generator[Path]:
    with toys(tmp_path) as folder:
        yield folder


def as_json(command: Command, *tokens: str) -> Any:
    ran = command(*tokens, "--format", "json")
    assert ran.code == 0, ran.err
    return ran.data


def test_the_documented_package_passes_its_suites(installed: Path, tmp_path: Path) -> None:
    paths = [str(installed), os.environ.get("PYTHONPATH", "")]
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *without, "test_toys.py"],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "45 passed" in done.stdout


def test_help_names_what_packages_add(command: Command, installed: Path) -> None:
    for verb, flag, name in (
        ("profile", "--meter", "constant"),
        ("collect", "--meter", "constant"),
        ("compare", "--peers", "onnx_python"),
        ("solve", "--solver", "descend"),
        ("tune", "--solver", "best_of, descend"),
    ):
        shown = command(verb, "--help").out
        assert "From other packages:" in shown and f"{flag} {name}" in shown, verb
    assert "best_of" not in command("solve", "--help").out
    assert "From other packages" not in command("run", "--help").out


def test_a_meter(command: Command, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = circumstances.kernel_protocol
    monkeypatch.setattr(
        circumstances, "kernel_protocol", lambda place: replace(usual(place), timeout_s=60.0)
    )
    monkeypatch.setattr(energy, "LEAST_WINDOW_S", 0.05)
    data = as_json(command, "profile", "op:relu[shape=1x8]", "--power", "--meter", "constant:65")
    assert data["energy"]["method"] == "constant: 65 W"
    assert data["energy"]["power_w"] == pytest.approx(65, rel=1e-6)
    ran = command("profile", *MLP, "--power", "--meter", "constant:65")
    assert ran.code == 2 and "simulated targets do not run on it" in ran.err
    ran = command("profile", *MLP, "--power", "--meter", "constant:much")
    assert ran.code == 2 and "takes watts, not 'much'" in ran.err
    ran = command("profile", *MLP, "--power", "--meter", "constnat:5")
    assert ran.code == 2 and "no power meter is called 'constnat'" in ran.err
    assert "constant" in ran.err


def test_a_peer(command: Command, installed: Path) -> None:
    data = as_json(command, "compare", *MLP, "--peers", "onnx-python,onnxruntime")
    assert {row["peer"] for row in data["rows"]} == {"onnx_python", "onnxruntime"}
    ran = command("compare", *MLP, "--peers", "onnx_pyhton")
    assert ran.code == 2 and "Did you mean onnx_python?" in ran.err


def test_a_solver(command: Command, installed: Path) -> None:
    data = as_json(command, "solve", "problem.json", "--solver", "descend")
    assert data["solver"] == "descend" and 0 < data["bound_s"] <= data["objective_s"]
    graph = ("--level", "graph", "--budget", "0", "--solver", "descend")
    assert as_json(command, "tune", *MLP, *graph)["solver"] == "descend"


def test_a_planner(command: Command, installed: Path) -> None:
    graph = ("--level", "graph", "--budget", "30")
    data = as_json(command, "tune", *MLP, *graph, "--solver", "best-of")
    assert data["solver"].startswith("best_of: ") and data["objective_s"] > 0
    ran = command("solve", "problem.json", "--solver", "best_of")
    assert ran.code == 2 and "no solver is called 'best_of'" in ran.err
    ran = command("tune", *MLP, *graph, "--solver", "best_fo")
    assert ran.code == 2 and "Did you mean best_of?" in ran.err


def test_a_store(command: Command, installed: Path, tmp_path: Path) -> None:
    first = as_json(command, "optimize", *MLP, "--budget", "20", "--db", "project:vision")
    assert first["measurements"] > 0
    assert (tmp_path / "home" / "measurements" / "vision.db").is_file()
    assert not Path("a.db").exists()
    held = as_json(command, "db", "info", "--db", "project:vision")
    assert held["measurements"] >= first["measurements"]
    ran = command("doctor", "--db", "project:vision", "--format", "json")
    found = {check["name"]: check for check in ran.data["checks"]}
    assert found["database"]["detail"].startswith("project:vision: ")
    assert found["solvers: descend"]["detail"] == "package toys"
    assert found["peer onnx_python"]["status"] == "ok"


def test_a_store_that_is_no_database(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"tilewright.stores": {"journal": "helpers.plugins.journal_store:opened"}}
    with offering(tmp_path, points):
        monkeypatch.setenv("TILEWRIGHT_DB", "journal:kept.txt")
        first = as_json(command, "optimize", *MLP, "--budget", "20")
        again = as_json(command, "optimize", *MLP, "--budget", "20")
        assert first["measurements"] > 0 == again["measurements"], "it was not recalled"
        assert Path("kept.txt").is_file() and not Path("a.db").exists()
        assert command("predict", *MLP).code == 0
        with Session(target="simulated", threads=1) as session:
            frame = session.measurements(placement=session.placement.key)
            assert frame.height == first["measurements"]
            assert session.measurements(implementation="none").height == 0
        for verb in (("info",), ("gc",), ("export", "all.jsonl"), ("import", "kept.txt")):
            ran = command("db", *verb)
            assert ran.code == 5, verb
            assert "a Journal keeps measurements, but cannot be" in ran.err
        ran = command("doctor", "--format", "json")
        found = {check["name"]: check for check in ran.data["checks"]}
        assert found["database"]["detail"] == "journal:kept.txt"


def test_nothing_is_left_of_memory(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    data = as_json(command, "optimize", *MLP, "--budget", "20", "--db", "memory:")
    assert data["measurements"] > 0
    monkeypatch.setenv("TILEWRIGHT_DB", "memory:")
    assert as_json(command, "db", "info")["measurements"] == 0
    assert not [path for path in Path().iterdir() if "memory" in path.name]


def test_a_colon_in_a_path_is_no_scheme(command: Command, tmp_path: Path) -> None:
    ours = as_json(command, "db", "info", "--db", "results:2026.db")
    assert ours["path"] == "results:2026.db" and Path("results:2026.db").is_file()
    points = {"tilewright.stores": {"results": "helpers.plugins.journal_store:opened"}}
    with offering(tmp_path, points):
        again = as_json(command, "db", "info", "--db", "results:2026.db")
        assert again["path"] == ours["path"], "a file that exists does not win"
        assert command("db", "info", "--db", "results:2027.db").code == 5
    forced = as_json(command, "db", "info", "--db", "sqlite:memory:x")
    assert forced["path"] == "memory:x" and Path("memory:x").is_file()


@BY_GROUP
def test_a_package_that_does_not_load(command: Command, tmp_path: Path, group: str) -> None:
    kind, tokens, code = BROKEN[group]
    points: Points = {group: {"broken": "no_such_package:thing"}}
    with offering(tmp_path, points):
        ran = command(*tokens)
        assert ran.code == code, ran.err
        assert f"{kind} " in ran.err and "'broken' of the package toys cannot be used" in ran.err
        assert "No module named 'no_such_package'" in ran.err
        assert "pip uninstall toys" in ran.err and "Traceback" not in ran.err


@BY_GROUP
def test_a_package_that_offers_something_else(command: Command, tmp_path: Path, group: str) -> None:
    _, tokens, code = BROKEN[group]
    with offering(tmp_path, {group: {"broken": "helpers.plugins.offer:HERE"}}):
        ran = command(*tokens)
        assert ran.code == code, ran.err
        assert (
            "cannot be used: helpers.plugins.offer:HERE: it " in ran.err
            and "Traceback" not in ran.err
        )


def test_broken_packages_break_nothing_else(command: Command, tmp_path: Path) -> None:
    points = {group: {"broken": "no_such_package:thing"} for group in BROKEN}
    points["tilewright.accesses"] = points["tilewright.implementations"] = {"broken": "a:b"}
    with offering(tmp_path, points):
        graph = ("--level", "graph", "--budget", "20")
        assert as_json(command, "tune", *MLP, *graph, "--solver", "exact")["measurements"] > 0
        assert command("compare", *MLP, "--peers", "onnxruntime").code == 0
        ran = command("doctor", "--format", "json")
        assert ran.code == 0
        told = {check["name"]: check for check in ran.data["checks"] if "broken" in check["name"]}
        assert len(told) == len(points) + 1, "each once, and the peer among the peers"
        assert {check["status"] for check in told.values()} == {"warning"}


def test_a_command_of_its_own_process_finds_them(command: Command, tmp_path: Path) -> None:
    points = {"tilewright.stores": {"journal": "helpers.plugins.journal_store:opened"}}
    path = [*offered(tmp_path / "site", "toys", points), os.environ.get("PYTHONPATH", "")]
    code = "import sys; from tilewright.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "db", "info", "--db", "journal:kept.txt"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 5 and "a Journal keeps measurements" in done.stderr

"""Escapes from model files stay visible text; progress is quiet; imports are light."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.fakes.session import OPTIMIZED, PROFILED, TASK, FakeSession
from tilewright.cli import main as entry
from tilewright.cli.progress import (
    LiveProgress,
    PlainProgress,
    describe,
    progress_view,
    task_table,
    time_left,
)
from tilewright.core.errors import ModelError
from tilewright.core.events import Note, Stage, TuningProgress

Command = Callable[..., Any]
EVIL = "conv\x1b[31m\x9b2J\r\u202e[bold red]<script>alert(1)</script>|`x`\x07"
PROGRESS = TuningProgress(
    task=EVIL, measurements=40, failures=2, best_s=0.001, network_s=0.02, remaining_s=75.0
)


def assert_harmless(text: str) -> None:
    assert not set(text) & set("\x1b\x9b\r\u202e\x07"), text


@pytest.mark.parametrize("format", ["table", "csv", "md", "json"])
def test_names_never_steer_the_terminal(
    tilewright: Command, session: FakeSession, format: str
) -> None:
    task = replace(TASK, name=EVIL, implementation=EVIL)
    session.profiled = replace(PROFILED, model=EVIL, tasks=(task,), explanation=EVIL)
    session.optimized = replace(OPTIMIZED, model=EVIL, tasks=(task,), warnings=(EVIL,))
    session.events = [Note(message=EVIL), Stage(name="tune", detail=EVIL), PROGRESS]
    session.text = EVIL
    for verb in ("profile", "optimize", "show"):
        ran = tilewright(verb, EVIL, "--format", format)
        assert ran.code == 0
        assert_harmless(ran.out)
        assert_harmless(ran.err)
        assert "alert(1)" in ran.out
        if format == "table":
            assert "[bold red]" in ran.out
        if format == "md" and verb != "show":
            assert "<script>" not in ran.out.replace("\\<", "")


def test_errors_are_escaped_and_cannot_pose_as_lines(
    tilewright: Command, session: FakeSession
) -> None:
    session.error = ModelError(f"node {EVIL}\nerror: fake", hint=EVIL)
    ran = tilewright("profile", "m")
    assert_harmless(ran.err)
    assert ran.err.count("\nerror:") == 0
    session.error = ValueError(EVIL)
    assert_harmless(tilewright("profile", EVIL).err)
    session.error = KeyboardInterrupt()
    assert_harmless(tilewright("profile", EVIL).err)
    assert_harmless(tilewright(EVIL).err)
    assert_harmless(tilewright("profile", "m", "--" + EVIL).err)


def test_plain_progress_is_rare(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    view = PlainProgress(clock=lambda: now[0])
    for _ in range(100):
        view(replace(PROGRESS, task="conv"))
        now[0] += 0.5
    view(Stage(name="verify"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[0] == "40 measured, 2 failed, network 20 ms, conv best 1 ms, 1:15 left"
    assert lines[-1] == "verify"


def test_describe_without_budget_or_best() -> None:
    line = describe(replace(PROGRESS, task="t", best_s=None, remaining_s=None, failures=0))
    assert line == "40 measured, network 20 ms, t"
    assert describe(replace(PROGRESS, remaining_s=3675.0)).endswith("1:01:15 left")


def test_describe_tells_what_the_task_gained() -> None:
    line = describe(
        replace(
            PROGRESS,
            task="t",
            gain=1.5,
            task_failures=1,
            converged=True,
            network_s=None,
            failures=1,
        )
    )
    assert line == "40 measured, 1 failed, t best 1 ms (gain 1.50×, 1 failed, converged), 1:15 left"


def test_live_table_has_a_row_per_task() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=90, height=9, color_system=None)
    with LiveProgress(console) as view:
        for number in range(6):
            view(replace(PROGRESS, task=f"task{number}", gain=1.0 + number, task_failures=number))
        view(replace(PROGRESS, task="task4", task_measurements=77, converged=True))
        last = screen.getvalue().split("40 measured")[-1]
        view(Stage(name="verify"))
        after = screen.getvalue().split("verify")[-1]
    assert "1:15 left" in last
    assert "task3" in last and "task4" in last and "task5" in last
    assert "task0" not in last, "only the tasks searched last fit on the screen"
    assert "and 3 more tasks" in last
    (row,) = [line for line in last.splitlines() if "task4" in line]
    assert row.split() == ["task4", "1", "ms", "–", "77", "0", "converged"]
    assert "4.00×" in last and "6.00×" in last
    assert "task" not in after


@pytest.mark.parametrize("width", [40, 60, 90, 200])
def test_live_table_never_wraps(width: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=width, color_system=None)
    rows = [replace(PROGRESS, task=EVIL * 9, gain=1.5, converged=True)]
    console.print(task_table(rows, "other", width=width))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 2
    assert all(len(line) <= width for line in lines)
    assert_harmless(screen.getvalue().replace("\n", ""))


def drawn(view: LiveProgress, width: int) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width, color_system=None).print(view._drawn())  # noqa: SLF001
    return screen.getvalue().splitlines()


def test_phases_tell_how_much_of_the_budget_is_spent() -> None:
    now, screen = [0.0], io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with LiveProgress(console, clock=lambda: now[0]) as view:
        view(Stage(name="import"))
        assert drawn(view, 100) == ["import"], "of no budget is known yet"
        now[0] += 3
        view(Stage(name="tune", detail="24 tasks"))
        view(replace(PROGRESS, task="conv", spent=0.25, limit_s=600.0))
        line = drawn(view, 100)[0]
        assert line.startswith("tune: 24 tasks  ━") and line.endswith("25 % of the budget")
        now[0] += 150
        view(Stage(name="compile"))
        assert "50 % of the budget" in drawn(view, 100)[0], "a budget in time goes on"
        view(replace(PROGRESS, task="conv", spent=1.0, remaining_s=None, remaining=0))
        assert "100 % of the budget" in drawn(view, 100)[0]
        view(Stage(name="check"))
        assert drawn(view, 100) == ["check"], "a budget in candidates says nothing about it"
    told = screen.getvalue()
    assert "import (0:03)" in told and "tune: 24 tasks (2:30)" in told and "compile (0:00)" in told


def test_a_budget_in_candidates_is_told() -> None:
    counted = replace(PROGRESS, task="t", remaining_s=None, remaining=17, spent=0.9)
    assert describe(counted).endswith("t best 1 ms, 17 candidates left")


@pytest.mark.parametrize("width", [10, 20, 40, 69, 70, 200])
def test_live_progress_fits_any_width(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    with LiveProgress(console) as view:
        view(Stage(name="tune", detail="24 tasks of a network with a long name"))
        view(replace(PROGRESS, spent=0.5, gain=1.5, converged=True))
        lines = drawn(view, width)
    assert len(lines) == 4 and all(len(line) <= width for line in lines)
    assert ("━" in lines[0]) == (width >= 70)


def test_a_real_terminal_keeps_the_phases_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replaced in place is gone in the end, and the cursor is there again."""
    reader, terminal = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with os.fdopen(terminal, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress_view() as view:
            view(Stage(name="tune", detail="2 tasks"))
            view(replace(PROGRESS, task="conv", spent=0.5))
        stderr.write("END")
        stderr.flush()
        shown = ""
        while not shown.endswith("END"):  # a terminal gives what has arrived so far
            shown += os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert "50 % of the budget" in shown
    assert "\x1b[?25h" in shown
    assert "tune: 2 tasks (0:00)" in shown.split("40 measured")[-1]


def test_live_progress_on_a_terminal() -> None:
    screen = io.StringIO()
    before = {thread.name for thread in threading.enumerate()}
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with LiveProgress(console) as view:
        view(Stage(name="tune", detail="24 [bold]tasks"))
        view(PROGRESS)
        view(Note(message="noisy \x1b]0;title\x07"))
        threads = {thread.name for thread in threading.enumerate()}
    shown = screen.getvalue()
    assert threads == before, "nothing may run while kernels are timed"
    assert "24 [bold]tasks" in shown
    assert "40 measured" in shown
    assert "warning: noisy \\x1b]0;title" in shown
    assert "\x1b]0" not in shown


def test_library_output_on_the_descriptor_goes_to_stderr() -> None:
    code = """
import os, sys
from tilewright.cli.streams import stdout_for_data, write_data
print("before")
with stdout_for_data():
    os.write(1, b"from C\\n")
    print("from Python")
    os.system("echo from a child")
write_data("data\\n")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "before\ndata\n"
    for who in ("from C", "from Python", "from a child"):
        assert who in ran.stderr


def test_reader_that_went_away_is_quiet() -> None:
    code = """
import sys
from tilewright.cli.streams import write_data
sys.stdin.read()
write_data("x" * 1_000_000)
write_data("more")
sys.exit(7)
"""
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout and process.stdin and process.stderr
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 7


def test_full_disk_behind_stdout_is_an_error() -> None:
    code = """
import sys
from tilewright.cli.streams import write_data
from tilewright.core.errors import OutputError
try:
    write_data("x" * 100_000)
except OutputError as error:
    sys.stderr.write(str(error))
"""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, check=True
        )
    assert b"No space left" in ran.stderr


def test_names_beyond_the_encoding_are_escaped() -> None:
    code = (
        "from tilewright.cli import streams; streams.never_fail_on_encoding();"
        "streams.write_data('20 µs\\udcff')"
    )
    ran = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        capture_output=True,
        check=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert ran.stdout == b"20 \\xb5s\\udcff"


HEAVY = ("tvm", "onnx", "onnxruntime", "numpy", "polars", "plotly", "sqlalchemy", "jinja2", "torch")


@pytest.mark.parametrize(
    "code",
    [
        "import tilewright; tilewright.TilewrightError; dir(tilewright)",
        "from tilewright.cli.main import main; assert main(['--help']) == 0",
        "from tilewright.cli.main import main; assert main(['optimize', '--help']) == 0",
        "from tilewright.cli.main import main; assert main(['profile', 'm', '--bad']) == 2",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    check = f"{code}\nimport sys\nsys.exit(' '.join(set({HEAVY!r}) & set(sys.modules)) or None)"
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_import_tilewright_leaves_the_command_line_out() -> None:
    check = "import tilewright, sys; sys.exit(any(m in sys.modules for m in ('cyclopts', 'rich')))"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


def test_package_names_are_lazy_and_complete() -> None:
    import tilewright
    from tilewright.core import errors, results

    assert set(tilewright.__all__) <= set(dir(tilewright))
    assert tilewright.TargetError is errors.TargetError
    assert tilewright.OptimizeResult is results.OptimizeResult
    assert isinstance(tilewright.__version__, str)
    with pytest.raises(AttributeError, match="nonsense"):
        tilewright.__getattr__("nonsense")


def test_entry_takes_the_process_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tilewright", "--version"])
    assert entry.main() == 0
    assert capsys.readouterr().out.startswith("tilewright ")


class _Hangup(io.StringIO):
    """A terminal that is closed after a while."""

    closed_now = False

    def write(self, text: str) -> int:
        if self.closed_now:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_is_closed_does_not_end_the_work() -> None:
    terminal = _Hangup()
    console = Console(file=terminal, force_terminal=True, width=100, height=30)
    with LiveProgress(console) as view:
        view(PROGRESS)
        terminal.closed_now = True
        for event in (PROGRESS, Stage(name="verify"), Note(message="late"), PROGRESS):
            view(event)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (-3, "0:00"), (9.4, "0:09"), (75, "1:15"), (3599.6, "1:00:00"),
     (3600, "1:00:00"), (7325, "2:02:05"), (90061, "25:01:01")],
)  # fmt: skip
def test_time_left_as_clocks_show_it(seconds: float, text: str) -> None:
    assert time_left(seconds) == text

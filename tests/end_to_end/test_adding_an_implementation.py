"""The implementation that the documentation adds from another package is found, built and right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.installed_examples import install, run_python, run_suite


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    return install("adding-an-implementation.md", "serial", tmp_path)


def answer(installed: Path, *command: str) -> dict[str, Any]:
    """Run a verb with the example installed; its data."""
    done = run_python(installed, "-m", "tilewright", *command, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


OPERATOR = "op:relu[shape=1x16x8x8]"


def test_the_example_is_right(installed: Path) -> None:
    """Its estimate is the lowest, so default settings use it; `optimize` checks what it ships."""
    shipped = answer(installed, "optimize", OPERATOR, "--budget", "0")
    assert shipped["measurements"] == 0 and shipped["max_abs_error"] == 0
    assert [task["implementation"] for task in shipped["tasks"]] == ["elementwise_serial"]


def test_the_example_is_the_default(installed: Path) -> None:
    profile = answer(installed, "profile", OPERATOR, "--settings", "default")
    assert [task["implementation"] for task in profile["tasks"]] == ["elementwise_serial"]


def test_the_example_passes_the_suite(installed: Path) -> None:
    done = run_suite(installed, "test_serial.py")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_a_wrong_kernel_fails_the_suite(installed: Path) -> None:
    """A lowering that negates what it should clip."""
    path = installed / "serial" / "lowering.py"
    path.write_text(
        path.read_text().replace(
            "    schedule = program.schedule()\n",
            "    from dataclasses import replace\n"
            "    from tilewright.compiler.lower.program import Program\n"
            "    steps = [replace(s, operator='negative') for s in program.workload.steps]\n"
            "    if len(program.workload.arguments) == 1:\n"
            "        other = replace(program.workload, steps=tuple(steps))\n"
            "        program = Program(other, program.candidate)\n"
            "    schedule = program.schedule()\n",
        )
    )
    done = run_suite(installed, "test_serial.py")
    assert done.returncode == 1
    assert "wrong result" in done.stdout
    assert "2 passed" in done.stdout

"""The implementation that the documentation adds from another package is found, built and right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fenced_blocks import blocks

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/adding-an-implementation.md"
METADATA = "Metadata-Version: 2.1\nName: serial\nVersion: 1\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder laid out as pip would install the example."""
    (tmp_path / "serial").mkdir()
    (tmp_path / "serial-1.dist-info").mkdir()
    (tmp_path / "serial-1.dist-info" / "METADATA").write_text(METADATA)
    for block in blocks(PAGE):
        assert block.name
        folder = tmp_path / "serial-1.dist-info" if block.language == "ini" else tmp_path
        (folder / block.name).write_text(block.code)
    return tmp_path


def answer(installed: Path, *command: str) -> dict[str, Any]:
    """Run a verb with the example installed; its data."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "TILEWRIGHT_DB": str(installed / "test.db"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", *command, "--format", "json"],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


@pytest.mark.slow
def test_the_example_is_the_default_and_right(installed: Path) -> None:
    """Its estimate is the lowest, so default settings use it; `optimize` checks what it ships."""
    operator = "op:relu[shape=1x16x8x8]"
    shipped = answer(installed, "optimize", operator, "--budget", "0")
    assert shipped["measurements"] == 0 and shipped["max_abs_error"] == 0
    profile = answer(installed, "profile", operator, "--settings", "default")
    assert [task["implementation"] for task in profile["tasks"]] == ["elementwise_serial"]

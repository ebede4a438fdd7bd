"""The implementation with an anchor that the documentation adds is found and right, and the
commands for authors of implementations run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.commands.fenced_blocks import Block, blocks, run_block
from helpers.commands.installed_examples import REFERENCE, install, run_python, run_suite

PAGE = "lowering-with-an-anchor.md"
ROOT = REFERENCE.parents[1]
COMMANDS = [
    block
    for page in ("adding-an-implementation.md", PAGE)
    for block in blocks(REFERENCE / page)
    if block.language == "bash"
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(PAGE, "columns", tmp_path_factory.mktemp("columns"))


def test_the_example_passes_the_suite(installed: Path) -> None:
    done = run_suite(installed, "test_columns.py")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.parametrize("test", ["test_columns_spec.py", "test_columns_kernel.py"])
def test_the_example_passes_tests_like_ours(
    installed: Path, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers = str(ROOT / "tests")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")]))
    done = run_suite(installed, test)
    assert done.returncode == 0, done.stdout


def test_estimates_are_those_on_the_page(installed: Path) -> None:
    done = run_python(installed, "estimates.py")
    assert done.stdout == (installed / "estimates.txt").read_text(), done.stderr


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.code.split()[1])
def test_commands_run(block: Block, tmp_path: Path) -> None:
    assert run_block(block, ROOT, tmp_path / "test.db")

"""Examples of the documentation, laid out as pip would install them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.commands.command_line import know_machine
from helpers.commands.fenced_blocks import blocks

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def install(page: str, package: str, folder: Path) -> Path:
    """Write the page's examples, a package and its entry points, where they can be imported.

    Commands are left out: they are run where tilewright's own sources are.
    """
    metadata = folder / f"{package}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    for block in blocks(REFERENCE / page):
        if block.language == "bash":
            continue
        assert block.name
        path = (metadata if block.language == "ini" else folder) / block.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.code)
    return folder


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the example installed and a database that knows the machine's peaks."""
    know_machine(folder / "test.db")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "TILEWRIGHT_DB": str(folder / "test.db"),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def run_suite(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run the example's own tests, as its author would, who need not have hypothesis."""
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return run_python(folder, "-m", "pytest", "-q", *without, test)

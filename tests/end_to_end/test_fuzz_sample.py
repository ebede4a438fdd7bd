"""A few hostile models, artifacts, databases and command lines of the thousands of a whole run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.regression

FUZZ = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz.py"


@pytest.mark.slow
@pytest.mark.regression
def test_nothing_hostile_ends_in_our_own_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--sample", "--out", str(tmp_path / "fuzz.jsonl")],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all cases are done" in done.stdout

"""What was made before resources were told apart from devices goes on to be used."""

from __future__ import annotations

import platform
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import tilewright
from helpers.commands.command_line import small_model, succeed
from helpers.records.databases_of_before import as_version_4

FILES = Path(__file__).parents[1] / "fixtures/version_4"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the artifact is for x86-64")
def test_an_artifact_of_before_loads_and_computes(tmp_path: Path) -> None:
    folder = shutil.copytree(FILES / "artifact", tmp_path / "artifact")
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    found = tilewright.load(folder).run({"x": x})
    (expected,) = onnxruntime.InferenceSession(FILES / "tiny.onnx").run(None, {"x": x})
    np.testing.assert_allclose(found["z"], expected, rtol=1e-5)
    shown = succeed(tmp_path, "show", folder)
    assert {task["name"] for task in shown["tasks"]} == {"fc", "sm"}


def test_a_database_of_before_answers_instead_of_measuring(tmp_path: Path) -> None:
    """Measured with one thread, and today's file turned into that of before."""
    model = small_model(tmp_path / "net.onnx", filters=(8,))
    words = ("optimize", model, "--budget", "4", "--threads", "1")
    first = succeed(tmp_path, *words)
    assert first["measurements"] > 0
    (path,) = tmp_path.rglob("*.db")
    rows = _measurements(path)
    as_version_4(path)
    again = succeed(tmp_path, *words)
    assert again["measurements"] == 0
    assert _measurements(path) == rows


def _measurements(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT workload_key, device_class, resources, settings, samples_s FROM measurements "
            "ORDER BY id"
        ).fetchall()

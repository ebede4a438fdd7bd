"""NVIDIA's compiler: what it prints, and what becomes of its absence and its refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.compiler.cuda.code import compiled_source, read_reports

SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel_1' for 'sm_90'
ptxas info    : Function properties for main_kernel_1
    40 bytes stack frame, 36 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 12.345 ms
ptxas info    : Compiling entry function 'main_kernel' for 'sm_90'
ptxas info    : Function properties for main_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers
"""


def _nvcc(folder: Path, script: str) -> None:
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_reports_of_all_functions() -> None:
    found = read_reports(SAID)
    assert set(found) == {"main_kernel", "main_kernel_1"}
    first = found["main_kernel_1"]
    assert (first.registers, first.shared_bytes, first.stack_bytes) == (255, 4096, 40)
    assert (first.spill_store_bytes, first.spill_load_bytes) == (36, 44)
    assert found["main_kernel"].registers == 16
    assert found["main_kernel"].shared_bytes == 0


@pytest.mark.parametrize("text", ["", "nonsense", "Compiling entry function 'f' for 'sm_90'\n"])
def test_text_without_a_report_gives_none(text: str) -> None:
    assert read_reports(text) == {}


def test_without_nvcc_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compiled_source("", "sm_90")
    assert found.binary == b""
    assert "nvcc" in found.reason


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo \"nvcc fatal   : Unsupported gpu architecture 'sm_61'\" >&2; exit 1", "sm_61"),
        ("exit 3", "no reason"),
        ("exit 0", "no reason"),
        ("echo 'kernel.cu(3): error: expected a ;'; echo 1 error; exit 2", "expected a ;"),
    ],
)
def test_a_refusal_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str
) -> None:
    _nvcc(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = compiled_source("", "sm_61")
    assert found.binary == b""
    assert said in found.reason
    assert not found.reports


def test_an_nvcc_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _nvcc(tmp_path, "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("tilewright.compiler.cuda.code._TIMEOUT_S", 0.2)
    assert "could not be run" in compiled_source("", "sm_90").reason


def test_an_nvcc_that_cannot_be_started_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "nvcc"
    path.write_bytes(b"\x7fELF broken")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "could not be run" in compiled_source("", "sm_90").reason

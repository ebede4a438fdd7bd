"""NVIDIA's compilers: what they print, and what becomes of their absence and their refusals."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tilewright.compiler.cuda.compilers import compiled_source, disassembled, nvrtc, read_reports
from tilewright.core.errors import TargetError

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "cuda"
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


def _tool(folder: Path, script: str) -> None:
    """An nvdisasm, where it is to do something."""
    if script:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nvdisasm").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "nvdisasm").chmod(0o755)


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


def test_without_both_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tilewright.compiler.cuda.compilers.nvrtc", lambda: None)
    found = compiled_source("", "sm_90")
    assert found.binary == b""
    assert "nvcc" in found.reason and "NVRTC" in found.reason


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
    monkeypatch.setattr("tilewright.compiler.cuda.compilers._TIMEOUT_S", 0.2)
    assert "could not be run" in compiled_source("", "sm_90").reason


def test_an_nvcc_that_cannot_be_started_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "nvcc"
    path.write_bytes(b"\x7fELF broken")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "could not be run" in compiled_source("", "sm_90").reason


def test_ptx_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _nvcc(tmp_path, 'test "$1" = -ptx; for last; do :; done; echo .version 9.0 > "${last%.cu}.ptx"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert compiled_source("", "sm_90", "ptx").binary == b".version 9.0\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("", "nor installed"),
        ("echo nvdisasm fatal error: no ELF >&2; exit 255", "no ELF"),
        ("exec sleep 60", "could not be run"),
    ],
)
def test_machine_code_wants_nvdisasm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str
) -> None:
    monkeypatch.setattr("tilewright.compiler.cuda.compilers._TIMEOUT_S", 0.2)
    monkeypatch.setattr("tilewright.compiler.cuda.compilers._nvidia_homes", list)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    _tool(tmp_path, script)
    with pytest.raises(TargetError, match=said):
        disassembled(b"")


def test_machine_code_is_what_nvdisasm_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tilewright.compiler.cuda.compilers._nvidia_homes", lambda: [tmp_path])
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    _tool(tmp_path / "cu13" / "bin", 'cat "$2"')
    assert disassembled(b"EXIT ;") == "EXIT ;"


# ------------------------------------------------------------------------- texts, and architectures

TENSOR_CORES = (FIXTURES / "tensor_core_convolution.cu").read_text(encoding="utf-8")
TURNED = """extern "C" __global__ void __launch_bounds__(64) turned(float* out, const float* in) {
  __shared__ float row[64];
  row[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = row[63 - threadIdx.x];
}"""
compiles = pytest.mark.skipif(
    shutil.which("nvcc") is None and nvrtc() is None, reason="neither nvcc nor NVRTC is here"
)
installed = pytest.mark.skipif(nvrtc() is None, reason="NVRTC, of NVIDIA's packages, is not here")


@compiles
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90", "sm_120"])
def test_a_pipeline_on_tensor_cores_does_not_spill(arch: str) -> None:
    found = compiled_source(TENSOR_CORES, arch)
    assert (found.reason, found.binary[:4]) == ("", b"\x7fELF")
    (report,) = found.reports.values()
    assert 64 <= report.registers <= 96
    assert (report.spill_store_bytes, report.spill_load_bytes, report.stack_bytes) == (0, 0, 0)


@compiles
def test_an_architecture_without_asynchronous_copies_refuses_them() -> None:
    found = compiled_source(TENSOR_CORES, "sm_75")
    assert found.binary == b"" and not found.reports
    assert "cp.async" in found.reason and "sm_80" in found.reason


@installed
def test_nvrtc_where_there_is_no_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compiled_source(TURNED, "sm_90")
    assert (found.reason, found.binary[:4]) == ("", b"\x7fELF")
    assert found.reports["turned"].shared_bytes == 256
    for text, arch, said in (
        ("not C++", "sm_90", "declaration"),
        (TURNED, "sm_61", "architecture"),
    ):
        refused = compiled_source(text, arch)
        assert refused.binary == b"" and not refused.reports
        assert refused.reason.startswith("NVRTC refuses: ") and said in refused.reason

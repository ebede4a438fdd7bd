"""`explain --target cuda` on the command line; no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.commands.command_line import call, run, succeed
from tilewright.compiler.cuda.compilers import missing_compiler

OPERATOR = "op:dense[m=33,k=64,n=33]"
H100 = ("--target", "cuda -model=H100")


def test_facts_and_differences_as_json(tmp_path: Path) -> None:
    other = OPERATOR.replace("n=33", "n=65")
    data = succeed(tmp_path, "explain", OPERATOR, "--versus", other, *H100)
    assert {"factors", "turning_points", "facts"} <= set(data)
    assert data["factors"] == []
    assert data["facts"]["grid_blocks"] >= 1
    assert data["facts"]["guarded_share"] > 0
    assert {"fact", "first", "second", "share"} == set(data["differences"][0])
    assert len(data["functions"]) == data["facts"]["kernels"]


def test_facts_as_a_table(tmp_path: Path) -> None:
    words = ("explain", "op:relu[shape=1x8x8x8]", *H100)
    done = run(tmp_path, *words)
    assert done.code == 0, done.err
    assert "sectors_per_load" in done.out and "cuda_stream" in done.out
    done = run(tmp_path, *words, "--implementation", "cuda_default")
    assert done.code == 0 and "Fallback" in done.out, done.err


@pytest.mark.parametrize(("view", "said"), [("cuda", "__global__"), ("tir", "blockIdx.x")])
def test_kernels_are_shown(tmp_path: Path, view: str, said: str) -> None:
    done = run(tmp_path, "show", "op:relu[shape=1x8x8x8]", f"--{view}", *H100)
    assert done.code == 0, done.err
    assert said in done.out


SHOW = ("show", "op:relu[shape=1x8x8x8]", *H100)
NVCC = """for last; do :; done
case "$1" in
  -ptx) echo "PTX of $3" > "${last%.cu}.ptx";;
  -cubin) echo "cubin of $3" > "${last%.cu}.cubin";;
esac"""


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that is on the PATH besides the system's own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr("tilewright.compiler.cuda.compilers._nvidia_homes", list)
    monkeypatch.setattr("tilewright.compiler.cuda.compilers.nvrtc", lambda: None)
    return folder


def test_what_compilers_make_is_shown(tools: Path, tmp_path: Path) -> None:
    tool(tools, "nvcc", NVCC)
    tool(tools, "nvdisasm", 'echo SASS; cat "$2"')
    for view, said in (
        ("ptx", "PTX of -arch=sm_90\n"),
        ("sass", "SASS\ncubin of -arch=sm_90\n"),
        ("asm", "SASS\ncubin of -arch=sm_90\n"),
    ):
        done = call(tmp_path, *SHOW, f"--{view}")
        assert (done.code, said in done.out) == (0, True), done


def test_compilers_that_are_missing_are_named(tools: Path, tmp_path: Path) -> None:
    for view in ("ptx", "sass"):
        done = call(tmp_path, *SHOW, f"--{view}")
        assert done.code == 3 and "nvcc" in done.err and "tilewright[nvrtc]" in done.err
    tool(tools, "nvcc", NVCC)
    done = call(tmp_path, *SHOW, "--sass")
    assert done.code == 3 and "nvdisasm" in done.err and "--ptx does not need it" in done.err


@pytest.mark.skipif(bool(missing_compiler()), reason="no compiler of NVIDIA's is here")
def test_ptx_is_that_of_the_kernel(tmp_path: Path) -> None:
    done = call(tmp_path, *SHOW, "--ptx")
    assert done.code == 0, done.err
    assert ".target sm_90" in done.out and ".entry main_kernel" in done.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("explain", OPERATOR, "--target", "cuda -model=H1000"), 3, "no datasheet"),
        (("explain", OPERATOR, "--target", '{"kind": "cuda", "arch": "sm_1"}'), 3, "sm_1"),
        (("explain", OPERATOR, *H100, "--confirm"), 2, "--confirm"),
        (("explain", OPERATOR, *H100, "--tracker", "localhost:9190"), 2, "tracker"),
        (("explain", "zoo:mlp", *H100), 2, "is no operator"),
        (("explain", "zoo:mlp", *H100, "--threads"), 3, "cannot run on this machine"),
        (("optimize", "zoo:mlp", *H100), 3, "cannot run on this machine"),
        (("show", OPERATOR, "--target", "cuda -model"), 3, "cannot be read"),
        (("show", OPERATOR, "--cuda"), 2, "have no view 'cuda'"),
        (("show", OPERATOR, "--cuda", "--ptx", *H100), 2, "exclude each other"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = run(tmp_path, *words)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err

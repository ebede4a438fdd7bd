"""`explain` of a CUDA target, with TVM and, where it is there, nvcc; no GPU is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tilewright
from tilewright.compiler.cuda.compilers import nvrtc
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.predictions import ExplainResult
from tilewright.insight import cuda_explaining

H100 = "cuda -model=H100"
UNTUNED = "cuda_default"
ROWS = "op:dense[m={m},k=2048,n=1000]"
nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")


def explained(
    name: str, target: str = H100, versus: str | None = None, implementation: str = ""
) -> tuple[ExplainResult, list[str]]:
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.message)

    with tilewright.open(target=target, events=listen, db=Path("none/there.db")) as session:
        return session.explain(name, versus=versus, implementation=implementation), notes


def test_a_second_row_changes_the_rule() -> None:
    found, _ = explained(ROWS.format(m=2), versus=ROWS.format(m=1), implementation=UNTUNED)
    first = found.differences[0]
    assert (first.fact, first.first, first.second) == ("rule", "Matmul", "Reduction")
    assert all(difference.share is None for difference in found.differences)
    changes = [point for point in found.turning_points if "Reduction to Matmul" in point.fact]
    assert [(point.parameter, point.value) for point in changes] == [("m", 2)]
    assert found.source == "roofline"
    assert found.ratio == pytest.approx(1.0, rel=0.02)


@nvcc
def test_where_a_wave_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """98 blocks an image, nine times 132 at once: twelve images; measured so on an H100."""
    monkeypatch.setattr(cuda_explaining, "numbers_of", lambda _name, **_batch: {"n": 12})
    found, notes = explained("op:conv2d[n=12,c=64,h=56,k=3,pad=1,out=64]", implementation=UNTUNED)
    if found.facts["registers"] != 56:
        pytest.skip("another nvcc gives other registers")
    assert found.facts["blocks_per_multiprocessor"] == 9
    (batch,) = [point for point in found.turning_points if point.parameter == "n"]
    assert (batch.value, batch.before, batch.after) == (13, 1, 2)
    assert batch.ratio > 1
    assert notes == []


def test_an_architecture_alone_has_no_waves_and_says_so() -> None:
    found, notes = explained("op:relu[shape=1x64x56x56]", "cuda -arch=sm_86")
    assert found.turning_points == ()
    assert found.latency_s is None
    assert any("waves are not known" in note for note in notes)
    assert not {"waves", "tail", "most_blocks"} & set(found.facts)


@pytest.mark.skipif(nvrtc() is not None, reason="NVRTC compiles without nvcc")
def test_without_nvcc_the_rest_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found, notes = explained("op:relu[shape=1x64x56x56]")
    assert "registers" not in found.facts
    assert found.facts["sectors_per_load"] == 16, "four numbers of each of 32 lanes"
    assert "nvcc" in found.reason
    assert any("registers and spills are not known" in note for note in notes)


def test_every_function_has_its_facts() -> None:
    found, _ = explained("op:softmax[shape=64x300]")
    assert len(found.functions) == found.facts["kernels"]
    assert found.functions[0]["function"]


@pytest.mark.parametrize("name", ["zoo:mlp", "conv2d", "0123456789abcdef"])
def test_only_operators_can_be_explained(name: str) -> None:
    with pytest.raises(UsageError, match="is no operator"):
        explained(name)


def test_what_else_a_cuda_target_cannot() -> None:
    with tilewright.open(target=H100) as session:
        with pytest.raises(UsageError, match="--confirm"):
            session.explain(ROWS.format(m=1), confirm=True)
        with pytest.raises(TargetError, match="cannot run on this machine"):
            _ = session.placement


def test_an_operator_along_its_padding_without_a_card() -> None:
    """What changes in the kernel is told, and that nothing was measured."""
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.message)

    with tilewright.open(target=H100, events=listen, db=Path("none/there.db")) as session:
        found = session.study_padding("op:conv2d[c=3,h=29,k=3,pad=1,out=8]", values=(0, 1, 2))
        with pytest.raises(UsageError, match="is no single operator"):
            session.study_padding("zoo:mlp")
        theirs = session.study_padding(
            "op:conv2d[c=3,h=29,k=3,pad=1,out=8]", values=(1,), implementation="cuda_default"
        )
    assert {row.implementation for row in theirs.rows} == {"cuda_default"}
    with (
        tilewright.open(db="memory:") as session,
        pytest.raises(UsageError, match="--implementation is for GPUs"),
    ):
        session.study_padding("op:relu[shape=4]", implementation="cuda_default")
    assert [row.value for row in found.rows] == [0, 1, 2]
    assert {row.latency_s for row in found.rows} == {None}
    predicted = [row.predicted_s for row in found.rows]
    assert predicted == sorted(predicted) and predicted[0] > 0
    comparisons = [row.facts["comparisons"] for row in found.rows]
    assert comparisons[0] < comparisons[1], "a border is asked about"
    sizes = [4 * (3 * 29 * 29 + 8 * 27 + 8 + 8 * (27 + 2 * pad) ** 2) for pad in (0, 1, 2)]
    for row, size in zip(found.rows, sizes, strict=True):
        assert row.memory_bytes is not None and size - 32 <= row.memory_bytes
    assert any("Nothing was measured" in note for note in notes)


def test_an_operator_with_its_channels_last() -> None:
    """The same tensors and another kernel; the layout is told, and others are refused."""
    name = "op:conv2d[c=24,h=29,k=3,pad=1,out=32]"
    with tilewright.open(target=H100, db=Path("none/there.db")) as session:
        rows, last = (
            session.study_padding(name, values=(0, 1), layout=layout) for layout in ("NCHW", "NHWC")
        )
        with pytest.raises(UsageError, match="'NHCW'"):
            session.study_padding(name, layout="NHCW")
        with pytest.raises(UsageError, match=r"computes op:dense\[.*NHWC"):
            session.study_padding(ROWS.format(m=8), parameter="m", layout="NHWC")
    assert (rows.layout, last.layout) == ("NCHW", "NHWC")
    for first, second in zip(rows.rows, last.rows, strict=True):
        assert first.memory_bytes == second.memory_bytes
        assert second.predicted_s < first.predicted_s
        assert second.facts != first.facts
    with tilewright.open(db=":memory:") as session, pytest.raises(UsageError, match="for CPUs"):
        session.study_padding(name, layout="NHWC")

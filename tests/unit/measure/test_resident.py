"""The peak of a process's memory: what was there before does not count, and nothing is guessed."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tilewright.measure.resident import ResidentMemory

MIB = 1 << 20


def tell(process: Path, peak: int, now: int) -> None:
    """What Linux says of a process, sizes in MiB."""
    (process / "status").write_text(
        f"Name:\tpython\nVmHWM:\t  {peak << 10} kB\nVmRSS:\t  {now << 10} kB\nThreads:\t3\n"
    )


def test_the_peak_beyond_the_state_before(tmp_path: Path) -> None:
    tell(tmp_path, peak=300, now=300)
    memory = ResidentMemory(tmp_path)
    assert (tmp_path / "clear_refs").read_text() == "5"
    tell(tmp_path, peak=450, now=320)
    found = memory.peak()
    assert (found.bytes, found.reason) == (150 * MIB, "") and "VmHWM" in found.method


def test_an_old_peak_that_stays_hides_a_lower_one(tmp_path: Path) -> None:
    (tmp_path / "clear_refs").mkdir()  # a file that cannot be written
    tell(tmp_path, peak=500, now=300)
    memory = ResidentMemory(tmp_path)
    tell(tmp_path, peak=500, now=320)
    hidden = memory.peak()
    assert hidden.bytes is None and hidden.method == "none"
    assert "clear_refs" in hidden.reason and "earlier peak" in hidden.reason
    tell(tmp_path, peak=501, now=320)
    assert memory.peak().bytes == 201 * MIB


@pytest.mark.parametrize("text", ["", "VmHWM:\t lots\n", "VmHWM:\t 12 kB\n"])
def test_no_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    memory = ResidentMemory(tmp_path)
    found = memory.peak()
    assert found.bytes is None and "VmHWM" in found.reason


def test_the_numbers_go_away_meanwhile(tmp_path: Path) -> None:
    tell(tmp_path, peak=300, now=300)
    memory = ResidentMemory(tmp_path)
    (tmp_path / "status").unlink()
    found = memory.peak()
    assert found.bytes is None and "any more" in found.reason


def test_this_process() -> None:
    memory = ResidentMemory()
    with mmap.mmap(-1, 64 * MIB) as fresh:  # an array might get memory that is resident already
        for _ in range(64):
            fresh.write(b"1" * MIB)
    found = memory.peak()
    if memory.reason:
        pytest.skip(memory.reason)
    assert found.bytes is not None
    assert 62 * MIB < found.bytes < 72 * MIB

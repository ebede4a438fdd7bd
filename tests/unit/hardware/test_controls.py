"""What can be set on a machine is told from its files, with the reason where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.fakes.machine_files import CLOCKS, CPUS, SERVER, tree
from tilewright.core.results import ControlRow
from tilewright.hardware.controls import controls


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.hardware.probe.process_affinity", lambda: frozenset(range(4)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def told(root: Path, *, allowed: bool = True) -> dict[str, ControlRow]:
    def writable(path: Path) -> bool:
        return allowed and path.exists()

    return {row.name: row for row in controls(root, writable)}


def test_a_server_whose_administrator_asks_may_set_everything(tmp_path: Path) -> None:
    found = told(tree(tmp_path, SERVER))
    assert [row.name for row in found.values() if not row.settable] == []
    assert found["cores"].range == "1 to 2 of 2 cores, 4 logical CPUs"
    assert found["threads"].range == "1 to 4"
    governor, clock = found["frequency governor"], found["clock"]
    assert (governor.value, governor.range) == ("powersave", "performance, powersave")
    assert (clock.value, clock.range) == ("0.8 to 3.5 GHz", "0.4 to 3.7 GHz")
    assert found["turbo"].how == f"/{CPUS}/intel_pstate/no_turbo"
    cap = found["power cap of package-0"]
    assert (cap.value, cap.range) == ("205 W", "up to 413 W")
    assert (found["cache ways"].value, found["cache ways"].range) == ("L3:0=7ff", "1 to 11 ways")


def test_who_may_not_write_is_told_which_file(tmp_path: Path) -> None:
    found = told(tree(tmp_path, SERVER), allowed=False)
    assert [row.name for row in found.values() if row.settable] == ["cores", "threads"]
    assert f"/{CLOCKS}/scaling_max_freq" in found["clock"].reason


def test_a_machine_that_tells_nothing_has_reasons(tmp_path: Path) -> None:
    files = {
        f"{CPUS}/smt/control": "notsupported",
        "proc/cpuinfo": "processor : 0\nflags : fpu hypervisor\n",
        "proc/filesystems": "nodev resctrl",
    }
    found = told(tree(tmp_path, files))
    assert found["smt siblings"].reason == "each core has one thread"
    assert "virtual machine" in found["clock"].reason
    assert found["cache ways"].reason == "the processor does not divide its cache"
    assert found["power cap"].reason


def test_a_cache_that_could_be_divided_names_what_is_missing(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "processor : 0\nflags : fpu cat_l3\n",
        "proc/filesystems": "nodev resctrl",
    }
    assert told(tree(tmp_path, files))["cache ways"].reason == "resctrl is not mounted"


def test_each_reason_goes_with_what_cannot_be_set() -> None:
    found = controls()
    assert [row.settable for row in found] == [not row.reason for row in found]
    assert found[0].value == ",".join(map(str, sorted(os.sched_getaffinity(0))))

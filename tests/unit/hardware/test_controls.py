"""What can be set on a machine is told from its files, with the reason where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.core.results import ControlRow
from tilewright.hardware.controls import controls

CPUS = "sys/devices/system/cpu"
CLOCKS = f"{CPUS}/cpu0/cpufreq"
RAPL = "sys/class/powercap/intel-rapl:0"
SERVER = {
    f"{CPUS}/online": "0-3",
    f"{CPUS}/cpu0/topology/core_cpus_list": "0,2",
    f"{CPUS}/cpu1/topology/core_cpus_list": "1,3",
    f"{CPUS}/cpu2/topology/core_cpus_list": "0,2",
    f"{CPUS}/cpu3/topology/core_cpus_list": "1,3",
    f"{CPUS}/smt/control": "on",
    f"{CPUS}/intel_pstate/no_turbo": "0",
    f"{CLOCKS}/scaling_governor": "powersave",
    f"{CLOCKS}/scaling_available_governors": "performance powersave",
    f"{CLOCKS}/scaling_min_freq": "800000",
    f"{CLOCKS}/scaling_max_freq": "3500000",
    f"{CLOCKS}/cpuinfo_min_freq": "400000",
    f"{CLOCKS}/cpuinfo_max_freq": "3700000",
    f"{RAPL}/name": "package-0",
    f"{RAPL}/constraint_0_power_limit_uw": "205000000",
    f"{RAPL}/constraint_0_max_power_uw": "413000000",
    "sys/fs/resctrl/info/L3/cbm_mask": "7ff",
    "sys/fs/resctrl/info/L3/min_cbm_bits": "1",
    "sys/fs/resctrl/schemata": "    L3:0=7ff\n",
    "proc/cpuinfo": "processor : 0\nflags : fpu cat_l3\n",
    "proc/driver/nvidia/version": "NVRM version",
    "proc/driver/nvidia/params": "",
}


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.hardware.probe.process_affinity", lambda: frozenset(range(4)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def told(root: Path, *, allowed: bool = True) -> dict[str, ControlRow]:
    def writable(path: Path) -> bool:
        return allowed and path.exists()

    return {row.name: row for row in controls(root, writable)}


def test_a_server_whose_administrator_asks_may_set_everything(tmp_path: Path) -> None:
    found = told(tree(tmp_path, SERVER | {"tmp/nvidia-mps/control": ""}))
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
    assert "administrator" in found["power cap of a GPU"].reason
    assert "no MPS server" in found["multiprocessors of a GPU"].reason


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
    assert found["power cap"].reason and "driver" in found["power cap of a GPU"].reason


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

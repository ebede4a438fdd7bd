"""The environment card and its warnings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilewright.hardware.environment import (
    installed_versions,
    noise_warnings,
    read_environment,
)

STAT = "cpu  100 0 50 800 10 0 0 {steal} 5 0\ncpu0 1 2 3\n"


def machine(root: Path, *, load: str = "0.10", steal: int = 0) -> Path:
    files = {
        "proc/cpuinfo": "processor : 0\nflags : sse hypervisor",
        "proc/loadavg": f"{load} 0.2 0.3 1/200 1234",
        "proc/meminfo": "MemTotal:  2048 kB\nMemFree: 10 kB\nMemAvailable:  1024 kB\n",
        "proc/stat": STAT.format(steal=steal),
        "proc/sys/kernel/osrelease": "6.1.0-test",
        "sys/devices/system/cpu/online": "0",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_reads_a_machine(tmp_path: Path) -> None:
    environment = read_environment(machine(tmp_path, steal=40))
    assert environment.kernel == "6.1.0-test"
    assert (environment.governor, environment.turbo) == ("powersave", False)
    assert environment.load_1m == 0.10
    assert (environment.memory_bytes, environment.available_bytes) == (2 << 20, 1 << 20)
    assert environment.virtualised
    assert (environment.steal_ticks, environment.total_ticks) == (40, 1000)


def test_missing_files_are_no_error(tmp_path: Path) -> None:
    environment = read_environment(tmp_path)
    assert environment.governor is None
    assert environment.turbo is None
    assert noise_warnings(environment, environment) == []


def test_warnings(tmp_path: Path) -> None:
    busy = read_environment(machine(tmp_path, load="0.51"))
    assert [
        word for word in ("load average", "powersave") if word in str(noise_warnings(busy))
    ] == [
        "load average",
        "powersave",
    ]
    calm = replace(busy, load_1m=0.5, governor="performance")
    assert noise_warnings(calm) == []
    robbed = replace(calm, steal_ticks=20, total_ticks=calm.total_ticks + 1000)
    assert "2.0%" in noise_warnings(calm, robbed)[0]
    assert noise_warnings(calm, replace(calm, total_ticks=calm.total_ticks + 1000)) == []
    assert "changed" in noise_warnings(calm, busy)[0]


def test_boost_of_other_drivers(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/devices/system/cpu/intel_pstate/no_turbo").unlink()
    boost = root / "sys/devices/system/cpu/cpufreq/boost"
    boost.parent.mkdir()
    boost.write_text("1")
    assert read_environment(root).turbo is True


def test_versions_of_what_is_installed_only() -> None:
    versions = installed_versions(("numpy", "surely-not-installed"))
    assert list(versions) == ["numpy"]

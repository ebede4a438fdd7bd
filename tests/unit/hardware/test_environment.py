"""The environment card and its warnings."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

from tilewright.core.records import Device, Placement
from tilewright.core.targets import threads_alone
from tilewright.hardware.environment import (
    environment_card,
    installed_versions,
    noise_warnings,
    read_environment,
)
from tilewright.hardware.gpus import gpu_target
from tilewright.hardware.target import parse_gpu


def machine(root: Path) -> Path:
    files = {
        "proc/cpuinfo": "processor : 0\nflags : sse hypervisor",
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
    environment = read_environment(machine(tmp_path))
    assert environment.kernel == platform.release()
    assert (environment.governor, environment.turbo) == ("powersave", False)
    assert environment.load_1m >= 0
    assert environment.memory_bytes > 1 << 20
    assert environment.virtualised
    assert 0 <= environment.steal_s < environment.total_s


def test_the_card_of_a_gpu_names_no_cpu() -> None:
    target = gpu_target(parse_gpu("cuda -model=H100"))
    device = Device(class_key="h100", instance="one", target=target, access="cuda")
    placement = Placement(device=device, resources=threads_alone(132))
    card = environment_card(read_environment(), placement)
    assert (card["GPU"], card["architecture"], card["multiprocessors"]) == ("H100", "sm_90", "132")
    assert "CPU" not in card and "tilewright" in card


def test_missing_files_are_no_error(tmp_path: Path) -> None:
    environment = read_environment(tmp_path)
    assert environment.governor is None
    assert environment.turbo is None
    assert noise_warnings(replace(environment, load_1m=0.0), environment) == []


def test_warnings(tmp_path: Path) -> None:
    busy = replace(read_environment(machine(tmp_path)), load_1m=0.51)
    assert [
        word for word in ("load average", "powersave") if word in str(noise_warnings(busy))
    ] == [
        "load average",
        "powersave",
    ]
    calm = replace(busy, load_1m=0.5, governor="performance")
    assert noise_warnings(calm) == []
    robbed = replace(calm, steal_s=calm.steal_s + 20, total_s=calm.total_s + 1000)
    assert "2.0%" in noise_warnings(calm, robbed)[0]
    assert noise_warnings(calm, replace(calm, total_s=calm.total_s + 1000)) == []
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

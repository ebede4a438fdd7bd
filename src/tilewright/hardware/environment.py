"""The surroundings of a measurement: what a report's environment card and `doctor` show."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tilewright.core.records import Placement
from tilewright.core.units import format_bytes
from tilewright.hardware.device import is_local
from tilewright.hardware.topology import allotted_cpus, cpuinfo_blocks, read_text

_BUILDING = ("tilewright", "apache-tvm", "apache-tvm-ffi")
PACKAGES = (
    *_BUILDING,
    "onnx",
    "onnxruntime",
    "openvino",
    "torch",
    "numpy",
)
LOAD_LIMIT = 0.5
STEAL_LIMIT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Kernel, clocks, load and versions at one moment.

    `turbo` and `governor` are None where the kernel does not tell, as in most virtual machines.
    `load_1m` is the average number of runnable tasks over the last minute. `steal_ticks` of
    `total_ticks` (counters since boot, all CPUs) went to other guests of the hypervisor.
    `versions` maps distribution names to installed versions.
    """

    kernel: str
    python: str
    governor: str | None
    turbo: bool | None
    load_1m: float
    memory_bytes: int
    available_bytes: int
    virtualised: bool
    steal_ticks: int
    total_ticks: int
    versions: Mapping[str, str]


def installed_versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """The versions of those `packages` that are installed, without importing any."""
    found: dict[str, str] = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def software_versions() -> str:
    """`name=version` of everything a kernel's time depends on, separated by spaces."""
    installed = installed_versions(_BUILDING)
    return " ".join(f"{name}={installed.get(name, 'none')}" for name in _BUILDING)


def _governor(root: Path, cpu: int) -> str | None:
    return read_text(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")


def _turbo(root: Path) -> bool | None:
    folder = root / "sys/devices/system/cpu"
    disabled = read_text(folder / "intel_pstate/no_turbo")
    if disabled is not None:
        return disabled == "0"
    boost = read_text(folder / "cpufreq/boost")
    return None if boost is None else boost == "1"


def _memory(root: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdecimal():
            sizes[key] = int(number[0]) * 1024
    return sizes


def _ticks(root: Path) -> tuple[int, int]:
    """(stolen, all) clock ticks since boot; guest time is already part of user time."""
    fields = (read_text(root / "proc/stat") or "").partition("\n")[0].split()[1:9]
    ticks = [int(field) for field in fields if field.isdecimal()]
    return (ticks[7] if len(ticks) > 7 else 0), sum(ticks)


def is_virtual(root: Path = Path("/")) -> bool:
    """Whether the CPU says that a hypervisor is below; x86 only, others never say so."""
    blocks = cpuinfo_blocks(root)
    return bool(blocks) and "hypervisor" in blocks[0].get("flags", "").split()


def read_environment(root: Path = Path("/")) -> Environment:
    """Read the environment now; `root` holds `proc` and `sys`. Missing files never raise."""
    load = (read_text(root / "proc/loadavg") or "").split()[:1]
    memory = _memory(root)
    stolen, total = _ticks(root)
    kernel = read_text(root / "proc/sys/kernel/osrelease")
    return Environment(
        kernel=kernel or platform.release(),
        python=platform.python_version(),
        governor=_governor(root, allotted_cpus(root)[0]),
        turbo=_turbo(root),
        load_1m=float(load[0]) if load else 0.0,
        memory_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        virtualised=is_virtual(root),
        steal_ticks=stolen,
        total_ticks=total,
        versions=installed_versions(),
    )


def noise_warnings(before: Environment, after: Environment | None = None) -> list[str]:
    """What may have disturbed a measurement, one sentence each; empty when nothing is known.

    `before` was read when the run began and `after` when it ended: only with both can stolen time
    be told, because the counters run since boot.
    """
    warnings: list[str] = []
    if before.load_1m > LOAD_LIMIT:
        warnings.append(
            f"Other work was running at the start (load average {before.load_1m:.2f}); "
            "times may be too long."
        )
    if before.governor == "powersave":
        warnings.append("The CPU frequency governor is powersave; clocks may lag behind the load.")
    if after is not None and after.governor != before.governor:
        warnings.append(
            f"The CPU frequency governor changed from {before.governor} to {after.governor}."
        )
    total = 0 if after is None else after.total_ticks - before.total_ticks
    if after is not None and total > 0:
        steal = (after.steal_ticks - before.steal_ticks) / total
        if steal > STEAL_LIMIT:
            warnings.append(f"The hypervisor took {steal:.1%} of the CPU time for other guests.")
    return warnings


def is_elsewhere(placement: Placement) -> bool:
    """Whether kernels run on another device than this machine; nobody tells its surroundings."""
    return not is_local(placement.device)


def environment_card(environment: Environment, placement: Placement) -> dict[str, str]:
    """What the report's environment card shows; of a device elsewhere no more is known than its
    target, and versions are those that built for it."""
    cpu, cpus = placement.target, ", ".join(map(str, placement.binding.cpus))
    if is_elsewhere(placement):
        told = {
            "CPU": cpu.model,
            "instruction set": f"{cpu.architecture}, {cpu.vector_bytes * 8}-bit vectors",
            "threads": f"{placement.resources.threads}, on another device",
            "python": f"{environment.python}, where it was built",
        }
        return told | dict(environment.versions)
    turbo = {True: "on", False: "off", None: "unknown"}[environment.turbo]
    card = {
        "CPU": cpu.model,
        "instruction set": f"{cpu.architecture}, {cpu.vector_bytes * 8}-bit vectors",
        "threads": f"{placement.resources.threads} on CPUs {cpus}",
        "caches": " / ".join(format_bytes(level.bytes) for level in cpu.memory if level.bytes),
        "memory": format_bytes(environment.memory_bytes),
        "kernel": environment.kernel,
        "governor": environment.governor or "unknown",
        "turbo": turbo,
        "virtual machine": "yes" if environment.virtualised else "no",
        "python": environment.python,
    }
    return card | dict(environment.versions)

"""The surroundings of a measurement: what a report's environment card and `doctor` show."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from tilewright.core.records import Placement
from tilewright.core.units import format_bytes
from tilewright.hardware.device import is_local
from tilewright.hardware.probe import allotted_cpus, cpuinfo_blocks, read_text

_BUILDING = ("tilewright", "apache-tvm", "apache-tvm-ffi")
PACKAGES = (
    *_BUILDING,
    "onnx",
    "onnxruntime",
    "openvino",
    "torch",
    "numpy",
)
_CPUS = "sys/devices/system/cpu"
LOAD_LIMIT = 0.5
STEAL_LIMIT = 0.01
_OWN_TIMES = 8
"""From user time to stolen time; that of our guests is part of user time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Kernel, clocks, load and versions at one moment.

    `turbo` and `governor` are None where the kernel does not tell, as in most virtual machines.
    `load_1m` is the average number of runnable tasks over the last minute. `steal_s` of `total_s`
    (since boot, all CPUs) went to other guests of the hypervisor.
    `versions` maps distribution names to installed versions.
    """

    kernel: str
    python: str
    governor: str | None
    turbo: bool | None
    load_1m: float
    memory_bytes: int
    virtualised: bool
    steal_s: float
    total_s: float
    versions: Mapping[str, str]


def installed_versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """The versions of those `packages` that are installed, without importing any."""
    found: dict[str, str] = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def own_version() -> str:
    """The installed version of tilewright; `0+unknown` in a source tree that is not installed."""
    return installed_versions(("tilewright",)).get("tilewright", "0+unknown")


@cache
def software_versions() -> str:
    """`name=version` of everything a kernel's time depends on, separated by spaces."""
    installed = installed_versions(_BUILDING)
    return " ".join(f"{name}={installed.get(name, 'none')}" for name in _BUILDING)


def _turbo(root: Path) -> bool | None:
    files = (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1"))
    told = ((read_text(root / _CPUS / name), on) for name, on in files)
    return next((text == on for text, on in told if text is not None), None)


def is_virtual(root: Path = Path("/")) -> bool:
    """Whether the CPU says that a hypervisor is below; x86 only, others never say so."""
    return any("hypervisor" in block.get("flags", "").split() for block in cpuinfo_blocks(root)[:1])


def read_environment(root: Path = Path("/")) -> Environment:
    """Read the environment now; `root` holds `proc` and `sys`, of which the clocks and whether the
    machine is virtual are read. Missing files never raise."""
    ticks = psutil.cpu_times()
    return Environment(
        kernel=platform.release(),
        python=platform.python_version(),
        governor=read_text(root / _CPUS / f"cpu{allotted_cpus(root)[0]}/cpufreq/scaling_governor"),
        turbo=_turbo(root),
        load_1m=os.getloadavg()[0],
        memory_bytes=psutil.virtual_memory().total,
        virtualised=is_virtual(root),
        steal_s=ticks.steal,
        total_s=sum(ticks[:_OWN_TIMES]),
        versions=installed_versions(),
    )


def noise_warnings(before: Environment, after: Environment | None = None) -> list[str]:
    """What may have disturbed a measurement, one sentence each; empty when nothing is known.

    `before` was read when the run began and `after` when it ended: only with both can stolen time
    be told, because the counters run since boot.
    """
    end = before if after is None else after
    passed_s = end.total_s - before.total_s
    steal = (end.steal_s - before.steal_s) / passed_s if passed_s > 0 else 0.0
    known = (
        (
            before.load_1m > LOAD_LIMIT,
            f"Other work was running at the start (load average {before.load_1m:.2f}); times may "
            "be too long.",
        ),
        (
            before.governor == "powersave",
            "The CPU frequency governor is powersave; clocks may lag behind the load.",
        ),
        (
            end.governor != before.governor,
            f"The CPU frequency governor changed from {before.governor} to {end.governor}.",
        ),
        (
            steal > STEAL_LIMIT,
            f"The hypervisor took {steal:.1%} of the CPU time for other guests.",
        ),
    )
    return [sentence for disturbed, sentence in known if disturbed]


def environment_card(environment: Environment, placement: Placement) -> dict[str, str]:
    """What the report's environment card shows; of a device elsewhere no more is known than its
    target, and versions are those that built for it."""
    cpu, cpus = placement.target, ", ".join(map(str, placement.binding.cpus))
    if cpu.kind == "cuda":
        return {
            "GPU": cpu.model,
            "architecture": cpu.architecture,
            "multiprocessors": str(placement.resources.cores),
            "memory": format_bytes(cpu.memory[-1].bytes),
            "kernel": environment.kernel,
            "python": environment.python,
        } | dict(environment.versions)
    if not is_local(placement.device):
        return {
            "CPU": cpu.model,
            "instruction set": f"{cpu.architecture}, {cpu.vector_bytes * 8}-bit vectors",
            "threads": f"{placement.resources.threads}, on another device",
            "python": f"{environment.python}, where it was built",
        } | dict(environment.versions)
    return {
        "CPU": cpu.model,
        "instruction set": f"{cpu.architecture}, {cpu.vector_bytes * 8}-bit vectors",
        "threads": f"{placement.resources.threads} on CPUs {cpus}",
        "caches": " / ".join(format_bytes(level.bytes) for level in cpu.memory if level.bytes),
        "memory": format_bytes(environment.memory_bytes),
        "kernel": environment.kernel,
        "governor": environment.governor or "unknown",
        "turbo": {True: "on", False: "off", None: "unknown"}[environment.turbo],
        "virtual machine": "yes" if environment.virtualised else "no",
        "python": environment.python,
    } | dict(environment.versions)

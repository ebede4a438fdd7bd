"""What this machine's CPU is, and which of its logical CPUs this process may use.

Both are read from /proc and /sys without running anything.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from tilewright.core.settings import read_settings
from tilewright.core.targets import Target
from tilewright.hardware.features import cpu_target, is_arm, llvm_features
from tilewright.hardware.tile_permission import tiles_permitted

FALLBACK_L1_BYTES = 32 << 10
FALLBACK_L2_BYTES = 256 << 10
FALLBACK_L3_BYTES = 8 << 20
_ARM_MAKERS = {
    "0x41": "Arm",
    "0x46": "Fujitsu",
    "0x48": "HiSilicon",
    "0x4e": "NVIDIA",
    "0x51": "Qualcomm",
    "0x61": "Apple",
    "0xc0": "Ampere",
}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_text(path: Path) -> str | None:
    """The stripped text of a small file, None when it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """`0-2,5` → (0, 1, 2, 5), the kernel's notation for sets of CPUs; empty when malformed."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def cpuinfo_blocks(root: Path) -> list[dict[str, str]]:
    """One dict of fields per logical CPU of /proc/cpuinfo; fields outside blocks are dropped."""
    chunks = (read_text(root / "proc/cpuinfo") or "").split("\n\n")
    lines = ([line.partition(":") for line in chunk.splitlines()] for chunk in chunks)
    blocks = ({name.strip(): text.strip() for name, _, text in each} for each in lines)
    return [block for block in blocks if block.get("processor", "").isdecimal()]


def online_cpus(root: Path) -> tuple[int, ...]:
    """All logical CPUs that are online: from sysfs, else /proc/cpuinfo, else CPU 0 alone."""
    listed = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
    named = (int(block["processor"]) for block in cpuinfo_blocks(root))
    return listed or tuple(sorted(named)) or (0,)


def core_groups(root: Path) -> list[tuple[int, ...]]:
    """The online logical CPUs grouped by physical core, ordered by their first CPU.

    From the topology in sysfs, else `physical id` and `core id` of /proc/cpuinfo; a CPU that
    neither knows counts as a core of its own.
    """
    online = online_cpus(root)
    ids: dict[int, tuple[str, str]] = {
        int(block["processor"]): (block.get("physical id", "0"), block["core id"])
        for block in cpuinfo_blocks(root)
        if "core id" in block
    }
    groups: dict[object, list[int]] = {}
    for cpu in online:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = read_text(topology / "core_cpus_list") or read_text(
            topology / "thread_siblings_list"
        )
        key: object = parse_cpu_list(siblings) if siblings else ids.get(cpu, cpu)
        groups.setdefault(key, []).append(cpu)
    return sorted(tuple(group) for group in groups.values())


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Folders that limit this process, innermost first, for cgroup v1 and v2.

    In a container the path in /proc/self/cgroup may lie outside what is mounted; the mount's own
    root, which is then the container's group, is always included.
    """
    folders: list[Path] = []
    mount = root / "sys/fs/cgroup"
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        bases = [mount / names, mount / controller] if names else [mount, mount / "unified"]
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for base in bases:
            folders += [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return folders or [mount, mount / controller]


def _quota_of(folder: Path) -> float | None:
    """CPUs' worth of time one cgroup folder grants, None when it sets no limit."""
    unified = (read_text(folder / "cpu.max") or "").split()
    quota = unified[0] if unified else read_text(folder / "cpu.cfs_quota_us")
    period = unified[1] if len(unified) > 1 else read_text(folder / "cpu.cfs_period_us")
    if not quota or not quota.isdecimal() or int(quota) == 0:
        return None
    return int(quota) / int(period if period and period.isdecimal() and int(period) else "100000")


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The tightest CPU quota of the process's control groups, in CPUs; None without one."""
    found = map(_quota_of, _cgroup_folders(root, "cpu"))
    return min((quota for quota in found if quota is not None), default=None)


def _cpuset(root: Path) -> tuple[int, ...]:
    """The CPUs of the innermost control group that names any; empty when none does."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    files = (folder / name for folder in _cgroup_folders(root, "cpuset") for name in names)
    lists = (parse_cpu_list(read_text(file) or "") for file in files)
    return next(filter(None, lists), ())


@cache
def process_affinity() -> frozenset[int]:
    """The CPUs the process was allowed at the first call.

    Remembered, because TVM's first kernel rewrites the affinity of the thread that calls it.
    """
    return frozenset(os.sched_getaffinity(0))


def allotted_cpus(
    root: Path = Path("/"), affinity: Collection[int] | None = None
) -> tuple[int, ...]:
    """The logical CPUs this process should use, one per physical core first, then the siblings.

    The affinity mask (`affinity`, by default the process's own) cut with the control group's CPU
    set. A quota shortens the list to as many CPUs as it pays for, rounded down, at least one:
    more threads than that would be stopped together for the rest of each period. Never empty.
    """
    allowed = set(process_affinity() if affinity is None else affinity)
    cpuset = _cpuset(root)
    if cpuset and allowed & set(cpuset):
        allowed &= set(cpuset)
    groups = [[cpu for cpu in group if cpu in allowed] for group in core_groups(root)]
    depth = max((len(group) for group in groups), default=0)
    ordered = [group[level] for level in range(depth) for group in groups if level < len(group)]
    ordered = ordered or sorted(allowed) or [0]
    quota = cpu_quota(root)
    return tuple(ordered if quota is None else ordered[: max(1, int(quota))])


def allotted_cores(root: Path = Path("/"), affinity: Collection[int] | None = None) -> int:
    """How many physical cores the allotted CPUs lie on."""
    return _cores_of(allotted_cpus(root, affinity), root)


def _cores_of(cpus: Collection[int], root: Path) -> int:
    """How many physical cores these CPUs lie on, at least one."""
    return max(1, sum(1 for group in core_groups(root) if not set(cpus).isdisjoint(group)))


def default_threads(root: Path = Path("/"), affinity: Collection[int] | None = None) -> int:
    """One thread per physical core allotted, at most OMP_NUM_THREADS where that is set.

    Cores and not logical CPUs, because two hyper-threads share the vector units that dense
    kernels keep busy. OMP_NUM_THREADS only lowers the number: it is how batch systems and
    containers say how much of a machine is ours, and the peers we are compared with obey it; a
    larger value would oversubscribe the cores.
    """
    cores = allotted_cores(root, affinity)
    limit = read_settings().omp_threads
    return cores if limit is None else min(cores, limit)


def parse_size(text: str) -> int:
    """Bytes in `48K`, `8192 KB` or `2M`; 0 when malformed."""
    digits = text.strip().rstrip("Bb").strip()
    unit = _UNITS.get(digits[-1:].upper(), 1)
    number = digits[:-1].strip() if digits[-1:].upper() in _UNITS else digits
    return int(number) * unit if number.isdecimal() else 0


def _architecture(fields: Mapping[str, str]) -> str:
    if "flags" in fields:
        return "x86_64"
    if "CPU implementer" in fields:
        return "aarch64" if fields.get("CPU architecture", "8") in ("8", "AArch64") else "armv7l"
    return platform.machine()


def _model(fields: Mapping[str, str], architecture: str) -> str:
    name = fields.get("model name") or fields.get("Processor") or fields.get("Hardware")
    if name and not (is_arm(architecture) and name.startswith(("AArch64", "ARMv"))):
        return " ".join(name.split())
    if "CPU part" in fields:
        code = fields.get("CPU implementer", "?")
        return f"{_ARM_MAKERS.get(code, f'ARM {code}')} part {fields['CPU part']}"
    return f"unknown {architecture}"


def _cache_sizes(root: Path) -> dict[int, int]:
    """Bytes per level of data cache of the first CPU; levels 1 and 2 divided by the cores on it."""
    folder = root / f"sys/devices/system/cpu/cpu{online_cpus(root)[0]}/cache"
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        level = read_text(index / "level") or ""
        if not level.isdecimal() or read_text(index / "type") == "Instruction":
            continue
        size = parse_size(read_text(index / "size") or "")
        shared = parse_cpu_list(read_text(index / "shared_cpu_list") or "")
        sizes[int(level)] = size // _cores_of(shared, root) if int(level) <= 2 else size
    return {level: size for level, size in sizes.items() if size > 0}


def probe_cpu(root: Path = Path("/")) -> Target:
    """This machine's CPU, without its TVM target.

    `root` holds `proc` and `sys`. `features` are in LLVM's spelling. Cache sizes come from sysfs;
    where it is missing, level 3 from /proc/cpuinfo and the rest from modest fallbacks. A machine
    without a third level reports its second as the last. `cores` counts the whole
    machine, not what is allotted. Tile registers that this process may not use are left out.
    """
    blocks = cpuinfo_blocks(root)
    fields: dict[str, str] = blocks[0] if blocks else {}
    architecture = _architecture(fields)
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    if "amx_tile" in flags and root == Path("/") and not tiles_permitted():
        flags = [flag for flag in flags if not flag.startswith("amx_")]
    sizes = _cache_sizes(root)
    l2_bytes = sizes.get(2, FALLBACK_L2_BYTES)
    last_bytes = l2_bytes if sizes else parse_size(fields.get("cache size", ""))
    return cpu_target(
        model=_model(fields, architecture),
        architecture=architecture,
        features=llvm_features(flags, architecture),
        cache_bytes=(
            sizes.get(1, FALLBACK_L1_BYTES),
            l2_bytes,
            sizes.get(3, last_bytes or FALLBACK_L3_BYTES),
        ),
        cores=len(core_groups(root)),
    )

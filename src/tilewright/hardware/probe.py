"""What this machine's CPU is, read from /proc and /sys without running anything."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

from tilewright.core.targets import Target
from tilewright.hardware.features import is_arm, llvm_features
from tilewright.hardware.topology import (
    core_groups,
    cpuinfo_blocks,
    online_cpus,
    parse_cpu_list,
    read_text,
)
from tilewright.hardware.units import cpu_target

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
    groups = core_groups(root)
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        level = read_text(index / "level") or ""
        if not level.isdecimal() or read_text(index / "type") == "Instruction":
            continue
        size = parse_size(read_text(index / "size") or "")
        shared = set(parse_cpu_list(read_text(index / "shared_cpu_list") or ""))
        cores = max(1, sum(1 for group in groups if shared & set(group)))
        sizes[int(level)] = size // cores if int(level) <= 2 else size
    return {level: size for level, size in sizes.items() if size > 0}


def probe_cpu(root: Path = Path("/")) -> Target:
    """This machine's CPU, without its TVM target.

    `root` holds `proc` and `sys`. `features` are in LLVM's spelling. Cache sizes come from sysfs;
    where it is missing, level 3 from /proc/cpuinfo and the rest from modest fallbacks. A machine
    without a third level reports its second as the last. `cores` counts the whole
    machine, not what is allotted.
    """
    blocks = cpuinfo_blocks(root)
    fields: dict[str, str] = blocks[0] if blocks else {}
    architecture = _architecture(fields)
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    sizes = _cache_sizes(root)
    l2_bytes = sizes.get(2, FALLBACK_L2_BYTES)
    reported = parse_size(fields.get("cache size", "")) if not sizes else l2_bytes
    last_bytes = sizes.get(3, reported or FALLBACK_L3_BYTES)
    return cpu_target(
        model=_model(fields, architecture),
        architecture=architecture,
        features=llvm_features(flags, architecture),
        cache_bytes=(sizes.get(1, FALLBACK_L1_BYTES), l2_bytes, last_bytes),
        cores=len(core_groups(root)),
    )

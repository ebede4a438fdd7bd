"""What can be set on this machine that times depend on, in which range, and whether this process
may: read from /proc and /sys, nothing is tried. Those of GPUs are in `gpu_controls`.

    for control in controls(): print(control.name, control.range, control.settable, control.reason)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.results import ControlRow
from tilewright.hardware.environment import is_virtual
from tilewright.hardware.probe import (
    allotted_cores,
    allotted_cpus,
    core_groups,
    default_threads,
    online_cpus,
    read_text,
)

_CPUS = "sys/devices/system/cpu"
_RESCTRL = "sys/fs/resctrl"


def may_write(path: Path) -> bool:
    """Whether this process may write a file."""
    return os.access(path, os.W_OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The files below a root, and which may be written."""

    root: Path
    writable: Callable[[Path], bool]

    def text(self, name: str) -> str | None:
        """What is in a file; None where there is none."""
        return read_text(self.root / name)

    def refusal(self, name: str) -> str:
        """Why a file cannot be written; empty where it can."""
        return "" if self.writable(self.root / name) else f"this process may not write /{name}"


def controls(
    root: Path = Path("/"), writable: Callable[[Path], bool] = may_write
) -> tuple[ControlRow, ...]:
    """All that is known of; what this machine does not have is among them, with the reason."""
    files = _Files(root=root, writable=writable)
    parts = (_of_processes, _of_siblings, _of_clocks, _of_power, _of_caches)
    return tuple(row for part in parts for row in part(files))


def _row(name: str, how: str, reason: str, value: str = "", span: str = "") -> ControlRow:
    return ControlRow(
        name=name, value=value, range=span, how=how, settable=not reason, reason=reason
    )


def _of_processes(files: _Files) -> Iterator[ControlRow]:
    """Cores and threads, which every process chooses for itself within what it is allotted."""
    root = files.root
    cpus, cores = allotted_cpus(root), allotted_cores(root)
    there = f"of {len(core_groups(root))} cores, {len(online_cpus(root))} logical CPUs"
    yield _row(
        "cores",
        "affinity: sched_setaffinity, taskset",
        "",
        value=",".join(map(str, sorted(cpus))),
        span=f"1 to {cores} {there}",
    )
    threads = str(default_threads(root))
    yield _row("threads", "--threads", "", value=threads, span=f"1 to {len(cpus)}")


def _of_siblings(files: _Files) -> Iterator[ControlRow]:
    name = f"{_CPUS}/smt/control"
    found = files.text(name)
    reasons = {
        None: "the kernel does not tell",
        "notsupported": "each core has one thread",
        "notimplemented": "the kernel has no such control for this processor",
        "forceoff": "it is off until the next start",
    }
    reason = reasons[found] if found in reasons else files.refusal(name)
    yield _row("smt siblings", f"/{name}", reason, value=found or "", span="on, off")


def _of_clocks(files: _Files) -> Iterator[ControlRow]:
    folder = f"{_CPUS}/cpu{allotted_cpus(files.root)[0]}/cpufreq"
    hidden = "the kernel tells no clocks"
    if is_virtual(files.root):
        hidden += ": this is a virtual machine"
    governor = files.text(f"{folder}/scaling_governor")
    offered = files.text(f"{folder}/scaling_available_governors") or ""
    name = f"{folder}/scaling_governor"
    reason = files.refusal(name) if governor else hidden
    span = ", ".join(offered.split())
    yield _row("frequency governor", f"/{name}", reason, value=governor or "", span=span)
    least, most = (files.text(f"{folder}/cpuinfo_{end}_freq") for end in ("min", "max"))
    lowest, highest = (files.text(f"{folder}/scaling_{end}_freq") for end in ("min", "max"))
    name = f"{folder}/scaling_max_freq"
    yield _row(
        "clock",
        f"/{folder}/scaling_min_freq and scaling_max_freq",
        files.refusal(name) if highest else hidden,
        value=_span(lowest, highest, 1e6, "GHz"),
        span=_span(least, most, 1e6, "GHz"),
    )
    known = [n for n in ("intel_pstate/no_turbo", "cpufreq/boost") if files.text(f"{_CPUS}/{n}")]
    name = f"{_CPUS}/{known[0]}" if known else f"{_CPUS}/cpufreq/boost"
    reason, value = (files.refusal(name), files.text(name) or "") if known else (hidden, "")
    yield _row("turbo", f"/{name}", reason, value=value, span="0, 1")


def _span(least: str | None, most: str | None, unit: float, name: str) -> str:
    """`800000`, `3500000` → `0.8 to 3.5 GHz`"""
    ends = [f"{int(end) / unit:g}" for end in (least, most) if end and end.isdecimal()]
    return f"{' to '.join(ends)} {name}" if ends else ""


def _of_power(files: _Files) -> Iterator[ControlRow]:
    folder = files.root / "sys/class/powercap"
    packages = sorted(path.name for path in folder.glob("intel-rapl:?"))
    if not packages:
        yield _row("power cap", "/sys/class/powercap", "the kernel offers no RAPL limits")
    for package in packages:
        name = f"sys/class/powercap/{package}/constraint_0_power_limit_uw"
        now, most = files.text(name), files.text(name.replace("power_limit", "max_power"))
        yield _row(
            f"power cap of {files.text(f'sys/class/powercap/{package}/name') or package}",
            f"/{name}",
            files.refusal(name) if now else "its limit cannot be read",
            value=_span(now, None, 1e6, "W"),
            span=f"up to {limit}" if (limit := _span(most, None, 1e6, "W")) else "",
        )


def _of_caches(files: _Files) -> Iterator[ControlRow]:
    mask = files.text(f"{_RESCTRL}/info/L3/cbm_mask")
    listed = "resctrl" in (files.text("proc/filesystems") or "").split()
    flags = (files.text("proc/cpuinfo") or "").split()
    if mask is None:
        reason = "the kernel has no resctrl"
        if listed:
            has = "cat_l3" in flags
            reason = "resctrl is not mounted" if has else "the processor does not divide its cache"
        yield _row("cache ways", f"/{_RESCTRL}", reason)
        return
    ways = bin(int(mask, 16)).count("1")
    least = files.text(f"{_RESCTRL}/info/L3/min_cbm_bits") or "1"
    name = f"{_RESCTRL}/schemata"
    text = files.text(name) or ""
    now = next((line.strip() for line in text.splitlines() if "L3:" in line), "")
    yield _row(
        "cache ways", f"/{name}", files.refusal(name), value=now, span=f"{least} to {ways} ways"
    )

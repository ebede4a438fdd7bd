"""What is measured once per device and kept: peaks, and the environment card."""

from __future__ import annotations

from tilewright.core.records import Device
from tilewright.core.units import format_bytes
from tilewright.hardware.environment import Environment
from tilewright.measure.kernels import KernelMeasurer
from tilewright.session.reporting import Peaks
from tilewright.store.database import SqliteStore


def measured_peaks(store: SqliteStore, device: Device, measurer: KernelMeasurer) -> Peaks:
    """The device's peaks from the store, measured first where it does not know them."""
    flop = store.peak(device.class_key, "flop_per_s")
    read = store.peak(device.class_key, "bytes_per_s")
    cache = store.peak(device.class_key, "cache_bytes_per_s")
    if flop is None or read is None or cache is None:
        found = measurer.peaks()
        for name, value in found.items():
            store.add_peak(device.class_key, name, value)
        return Peaks(**found)
    return Peaks(flop_per_s=flop, bytes_per_s=read, cache_bytes_per_s=cache)


def environment_card(environment: Environment, device: Device) -> dict[str, str]:
    """What the report's environment card shows."""
    cpu = device.cpu
    turbo = {True: "on", False: "off", None: "unknown"}[environment.turbo]
    card = {
        "CPU": cpu.model,
        "instruction set": f"{cpu.architecture}, {cpu.vector_bytes * 8}-bit vectors",
        "threads": f"{device.threads} on CPUs {', '.join(map(str, device.cpus))}",
        "caches": " / ".join(
            format_bytes(size) for size in (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes) if size
        ),
        "memory": format_bytes(environment.memory_bytes),
        "kernel": environment.kernel,
        "governor": environment.governor or "unknown",
        "turbo": turbo,
        "virtual machine": "yes" if environment.virtualised else "no",
        "python": environment.python,
    }
    return card | {name: text for name, text in environment.versions.items()}

"""What is measured once per device and kept: peaks, and the environment card."""

from __future__ import annotations

from tilewright.core.records import Device
from tilewright.core.units import format_bytes
from tilewright.hardware.environment import Environment
from tilewright.measure.base import Measurer
from tilewright.session.reporting import Peaks
from tilewright.store.database import SqliteStore


def measured_peaks(store: SqliteStore, device: Device, measurer: Measurer) -> Peaks:
    """The best this device has ever reached: what the store knows, and one more look.

    A disturbed look finds too little, never too much, so the largest value is kept.
    """
    best: dict[str, float] = {}
    for name, value in measurer.peaks().items():
        known = store.peak(device.class_key, name) or 0.0
        if value > known:
            store.add_peak(device.class_key, name, value)
        best[name] = max(value, known)
    return Peaks(**best)


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

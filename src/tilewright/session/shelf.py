"""What is measured once per device and kept: peaks, and the environment card."""

from __future__ import annotations

from tilewright.core.records import Placement
from tilewright.core.units import format_bytes
from tilewright.hardware.environment import Environment
from tilewright.measure.base import Measurer
from tilewright.session.reporting import Peaks
from tilewright.store.database import SqliteStore


def measured_peaks(store: SqliteStore, placement: Placement, measurer: Measurer) -> Peaks:
    """The best this device has ever reached: what the store knows, and one more look.

    A disturbed look finds too little, never too much, so the largest value is kept.
    """
    best: dict[str, float] = {}
    for name, value in measurer.peaks().items():
        known = store.peak(placement.key, name) or 0.0
        if value > known:
            store.add_peak(placement.key, name, value)
        best[name] = max(value, known)
    return Peaks(**best)


def environment_card(environment: Environment, placement: Placement) -> dict[str, str]:
    """What the report's environment card shows."""
    cpu, cpus = placement.target, ", ".join(map(str, placement.binding.cpus))
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
    return card | {name: text for name, text in environment.versions.items()}

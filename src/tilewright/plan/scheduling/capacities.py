"""What calls that run at a time share on a device, beside its memory: cores, bandwidth, power."""

from __future__ import annotations

from tilewright.plan.scheduling.parts import Mode, ScheduleDevice
from tilewright.plan.scheduling.problem import SchedulingProblem

ROUNDING = 1e-9
"""The share by which sums and ends may be off by rounding."""


def capacities(device: ScheduleDevice) -> dict[str, float]:
    """How much of each thing calls may take at a time; what has no limit is left out."""
    found = {"cores": float(device.cores)}
    if device.bytes_per_s is not None:
        found["bytes_per_s"] = device.bytes_per_s
    if device.power_w is not None:
        found["power_w"] = device.power_w - (device.idle_w or 0.0)
    return found


def demand(name: str, device: ScheduleDevice, mode: Mode) -> float:
    """How much of it a mode takes while it runs. A call that alone moves more than all may is
    allowed to: its time alone was what it was; nothing else that moves bytes runs beside it."""
    if name == "cores":
        return float(mode.cores)
    if name == "power_w":
        return mode.power_w
    return min(mode.bytes_per_s, device.bytes_per_s or mode.bytes_per_s)


def needed_bytes(problem: SchedulingProblem, number: int, mode: Mode) -> int:
    """What a call alone needs at least on the device of a mode: weights, workspace, result, and
    what it reads, computed there or sent."""
    read = sum(
        min(problem.calls[before].output_bytes, problem.sent_bytes[before])
        for before, _ in problem.before[number]
    )
    written = problem.calls[number].output_bytes
    return mode.weight_bytes + mode.workspace_bytes + written + read


def unusable(problem: SchedulingProblem, number: int, mode: Mode) -> str:
    """What a device has too little of for a call in this mode alone, empty where it has enough."""
    device = problem.device[mode.device]
    needed = needed_bytes(problem, number, mode)
    if device.memory_bytes is not None and needed > device.memory_bytes:
        return f"{needed} bytes of memory of {device.name!r}, which has {device.memory_bytes}"
    most = capacities(device).get("power_w")
    if most is not None and mode.power_w > most * (1 + ROUNDING):
        idle_w = device.idle_w or 0.0
        needed_w = mode.power_w + idle_w
        return f"{needed_w:.6g} W of {device.name!r}, whose power_w is {device.power_w:.6g}"
    return ""

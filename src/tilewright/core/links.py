"""Links between devices and the machine that hands them tensors: fields of the JSON contract.

rpc:pi    there 310 µs and 11.8 MB/s, back 190 µs and 11.7 MB/s, measured on 2026-11-29
npu       20 µs and 4 GB/s in both directions, as a person said
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.predictions import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One direction of a link: a tensor takes `latency_s` + bytes / `bytes_per_s`."""

    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLink:
    """The link between `device` and its host, with the ways `there`, from the host to the device,
    and `back`. `link_is` is what its numbers are: measured, a bound by a datasheet, or None where
    somebody said them. `of` says where they are from. What was measured was so by the machine
    `machine` on `day` (a date of UTC); of others both are empty."""

    device: str
    there: Way
    back: Way
    link_is: Mark | None = None
    of: str = ""
    machine: str = ""
    day: str = ""


def one_after_the_other(ways: tuple[Way, ...]) -> Way:
    """Several ways as one: a tensor is on the next when all of it is over the one before."""
    return Way(
        latency_s=sum(way.latency_s for way in ways),
        bytes_per_s=1 / sum(1 / way.bytes_per_s for way in ways),
    )

"""The places that a design of measurements asks for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tilewright.core.errors import TargetError, UsageError
from tilewright.core.records import Device
from tilewright.hardware.remote import remote_place
from tilewright.session.circumstances import Place
from tilewright.session.collecting.design import Design


def places_of(devices: Sequence[Device], design: Design) -> tuple[Place, ...]:
    """Every combination of a device (with its threads), a state of the caches and neighbours.

    Raises TargetError where the cores do not suffice, UsageError for circumstances that cannot be
    had on a remote device.
    """
    found = [
        Place(usual=device, cache=cache, neighbours=neighbours)
        for device, cache, neighbours in product(devices, design.caches, design.neighbours)
    ]
    for place in found:
        needed, there = place.usual.threads * (1 + place.neighbours), len(place.usual.cpus)
        if place.neighbours and needed > there:
            raise TargetError(
                f"{place.neighbours} copies beside a kernel of {place.usual.threads} threads need "
                f"{needed} logical CPUs; this process is allotted {there}",
                hint="Fewer --neighbours, or fewer --threads.",
            )
        if place.special and remote_place(place.usual) is not None:
            raise UsageError(
                "--cache and --neighbours are for kernels that run on this machine; a remote "
                "device is timed by its own server.",
                hint="Leave them out with --target rpc:KEY.",
            )
    return tuple(found)

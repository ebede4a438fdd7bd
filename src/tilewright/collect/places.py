"""The places that a design of measurements asks for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tilewright.collect.design import Design
from tilewright.core.errors import TargetError, UsageError
from tilewright.core.records import Placement
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.circumstances import Circumstances


def places_of(placements: Sequence[Placement], design: Design) -> tuple[Circumstances, ...]:
    """Every combination of a placement, a state of the caches and neighbours.

    Raises TargetError where the cores do not suffice, UsageError for circumstances that cannot be
    had on a remote device.
    """
    found = [
        Circumstances(usual=placement, cache=cache, neighbours=neighbours)
        for placement, cache, neighbours in product(placements, design.caches, design.neighbours)
    ]
    for place in found:
        usual = place.usual
        threads, there = usual.resources.threads, len(usual.binding.cpus)
        needed = threads * (1 + place.neighbours)
        if place.neighbours and needed > there:
            raise TargetError(
                f"{place.neighbours} copies beside a kernel of {threads} threads need "
                f"{needed} logical CPUs; this process is allotted {there}",
                hint="Fewer --neighbours, or fewer --threads.",
            )
        if place.special and not access_to(usual.device).here:
            raise UsageError(
                "--cache and --neighbours are for kernels that run on this machine; a remote "
                "device is timed by its own server.",
                hint="Leave them out with --target rpc:KEY.",
            )
    return tuple(found)

"""Measured links in a store: they lie with the peaks of the device's class, by the machine that
measured and the device as it is reached, and the newest count."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite

from tilewright.core.errors import ModelError
from tilewright.core.links import DeviceLink, Way
from tilewright.core.records import Placement, PlacementKey
from tilewright.core.targets import threads_alone
from tilewright.store.base import Store

_DIRECTIONS = "there", "back"
_NUMBERS = "latency_s", "bytes_per_s"
_MOST_S = 600.0
_LATEST_S = 2.0**33
"""After 1970: in the year 2242."""


def keep_link(store: Store, placement: Placement, machine: str, there: Way, back: Way) -> None:
    """Keep the ways between a machine and a device, and when they were measured; nothing where one
    of the numbers can be none."""
    if not (is_way(there) and is_way(back)):
        return
    store.add_device(placement.device)
    for direction, way in zip(_DIRECTIONS, (there, back), strict=True):
        for number in _NUMBERS:
            name = _name(placement, machine, f"{direction}_{number}")
            store.add_peak(_key(placement), name, getattr(way, number))
    store.add_peak(_key(placement), _name(placement, machine, "since_1970_s"), time.time())


def known_link(store: Store, name: str, placement: Placement, machine: str) -> DeviceLink | None:
    """The link between a machine and a device, called `name`, as it was measured last; None where
    it never was. Raises ModelError where what is kept cannot be."""
    found = [
        store.peak(_key(placement), _name(placement, machine, f"{direction}_{number}"))
        for direction in _DIRECTIONS
        for number in _NUMBERS
    ]
    when_s = store.peak(_key(placement), _name(placement, machine, "since_1970_s"))
    known = [value for value in found if value is not None]
    if len(known) < len(found) or when_s is None:
        return None
    there, back = (Way(latency_s=known[n], bytes_per_s=known[n + 1]) for n in (0, 2))
    if not (is_way(there) and is_way(back) and 0.0 <= when_s < _LATEST_S):
        raise ModelError(
            f"the database says of the link to {name!r} that copies take {known[0]:g} s and "
            f"{known[2]:g} s, and that {known[1]:g} and {known[3]:g} bytes go over it in a second, "
            f"measured {when_s:g} s after 1970, which cannot be",
            hint="`tilewright plan` measures it anew where the database can be written.",
        )
    return DeviceLink(
        device=name,
        there=there,
        back=back,
        link_is="measured",
        of=placement.device.instance,
        machine=machine,
        day=datetime.fromtimestamp(when_s, UTC).date().isoformat(),
    )


def is_way(way: Way) -> bool:
    """Whether numbers can be those of a way."""
    return 0.0 < way.latency_s < _MOST_S and way.bytes_per_s > 0.0 and isfinite(way.bytes_per_s)


def _name(placement: Placement, machine: str, number: str) -> str:
    return f"link {machine} {placement.device.instance} {number}"


def _key(placement: Placement) -> PlacementKey:
    """How many threads compute changes nothing about a link."""
    return replace(placement, resources=threads_alone(placement.target.cores)).key

"""The links of devices to their host, and the ways between devices over them.

cuda      PCIe 5.0 x16                by its datasheet: a bound
rpc:pi    12 MB/s there, 11 back      as this machine measured it (`measure.links`)
llvm      is the host
cuda → rpc:pi                         over both, one after the other
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tilewright.core.links import DeviceLink, Way, one_after_the_other
from tilewright.core.planning import PlanningDevice, Transfer
from tilewright.core.records import Placement
from tilewright.cost.blocks import LAUNCH_S
from tilewright.hardware.device import local_instance
from tilewright.hardware.links import host_link
from tilewright.hardware.remote import is_behind_tracker
from tilewright.kernels.base import CPU
from tilewright.store.base import Store
from tilewright.store.known_links import known_link

SAID, TABLE = "--link", "table"
"""What the links are of that a person or the table of a device said."""


def hosts(devices: Iterable[PlanningDevice]) -> list[str]:
    """The CPUs that need no link to the host, since they are it, by their names."""
    return [each.name for each in devices if each.kind in CPU and not is_behind_tracker(each.name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A device at an end of a way; `link` is None of a host, and where nobody knows it."""

    name: str
    is_host: bool
    link: DeviceLink | None


def end_of(name: str, placement: Placement, store: Store) -> End:
    """A device as an end of ways, with the link that was measured of it, if it is behind a tracker,
    or that its datasheet tells."""
    target, link = placement.target, host_link(placement.target)
    if is_behind_tracker(name):
        known = known_link(store, name, placement, local_instance())
        return End(name=name, is_host=False, link=known)
    if link is None:
        return End(name=name, is_host=not target.launch, link=None)
    way = Way(latency_s=LAUNCH_S, bytes_per_s=link[1])
    told = DeviceLink(device=name, there=way, back=way, link_is="bound", of=link[0])
    return End(name=name, is_host=False, link=told)


def transfer(origin: End, destination: End) -> Transfer:
    """The way from a device to another: over the links of both to the memory of their host, one
    after the other. Unknown where one of the links is, and between two hosts."""
    sides = (
        (origin, origin.link and origin.link.back),
        (destination, destination.link and destination.link.there),
    )
    ways = [way for end, way in sides if not end.is_host]
    known = tuple(way for way in ways if way is not None)
    if not known or len(known) < len(ways):
        return Transfer(
            origin=origin.name,
            destination=destination.name,
            latency_s=None,
            bytes_per_s=None,
            link="unknown",
        )
    both = one_after_the_other(known)
    links = [end.link for end, _ in sides if end.link is not None]
    return Transfer(
        origin=origin.name,
        destination=destination.name,
        latency_s=both.latency_s,
        bytes_per_s=float(round(both.bytes_per_s)),
        link=", ".join(link.of for link in links),
        source="exact" if all(link.link_is == "measured" for link in links) else "roofline",
    )


def told_links(
    devices: Iterable[PlanningDevice], said: Mapping[str, tuple[float, float]]
) -> tuple[DeviceLink, ...]:
    """The links of devices as a plan counts with them: what was `said` of a device, seconds and
    bytes per second, goes before what is known."""
    links = {device.name: device.link for device in devices}
    for name, (latency_s, bytes_per_s) in said.items():
        way = Way(latency_s=latency_s, bytes_per_s=bytes_per_s)
        links[name] = DeviceLink(device=name, there=way, back=way, of=SAID)
    return tuple(replace(link, device=name) for name, link in links.items() if link is not None)

"""The ways of tensors between devices, as datasheets tell them."""

from __future__ import annotations

from tilewright.core.planning import Transfer
from tilewright.core.targets import Target
from tilewright.cost.blocks import LAUNCH_S
from tilewright.hardware.links import host_link


def transfer_between(origin: tuple[str, Target], destination: tuple[str, Target]) -> Transfer:
    """From one device, by its name and what it is, to another one: over the links of both to the
    memory of their host, one after the other; a CPU is the host of the GPUs beside it."""
    (name, source), (other, sink) = origin, destination
    links = [host_link(source), host_link(sink)]
    known = [link for link in links if link is not None]
    unknown = [t for t, link in zip((source, sink), links, strict=True) if t.launch and not link]
    if not known or unknown:
        return Transfer(
            origin=name, destination=other, latency_s=None, bytes_per_s=None, link="unknown"
        )
    return Transfer(
        origin=name,
        destination=other,
        latency_s=len(known) * LAUNCH_S,
        bytes_per_s=float(round(1 / sum(1 / bytes_per_s for _, bytes_per_s in known))),
        link=", ".join(link for link, _ in known),
    )

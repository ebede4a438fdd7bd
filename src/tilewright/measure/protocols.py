"""How kernels are timed on a device."""

from __future__ import annotations

from tilewright.core.records import Placement, Protocol

PROBE = "op:conv2d[c=64,h=28,k=3,out=64,pad=1]"
"""Timed every now and then in its default settings: what the machine's speed did meanwhile."""

_MOST_ROTATION_BYTES = 128 << 20


def kernel_protocol(placement: Placement) -> Protocol:
    """Weights rotate through twice the last-level cache, at most 128 MiB.

    The cap is for servers whose last-level cache is larger than any network: there a network's
    weights come from that cache, and so must a kernel's (docs/decisions/0004).
    """
    last_level = placement.target.cache_bytes(3) or placement.target.cache_bytes(2)
    return Protocol(rotation_bytes=min(2 * last_level, _MOST_ROTATION_BYTES))

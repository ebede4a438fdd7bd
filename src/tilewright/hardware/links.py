"""How fast devices are connected, by their datasheets.

Figures are those of PCI Express in sixteen lanes, one direction, 128b/130b encoded; protocol and
the slot that a card is in take some of it, so that a time by them is a lower bound.
"""

from __future__ import annotations

from tilewright.core.targets import Target

_LINKS = {
    "sm_6": ("PCIe 3.0 x16", 15.75e9),
    "sm_7": ("PCIe 3.0 x16", 15.75e9),
    "sm_8": ("PCIe 4.0 x16", 31.5e9),
    "sm_9": ("PCIe 5.0 x16", 63.0e9),
    "sm_1": ("PCIe 5.0 x16", 63.0e9),
}
"""By the first digit of a compute capability, the fastest slot that its cards are made for."""


_INTEGRATED = ("sm_87",)
"""GPUs that have no memory of their own."""


def host_link(target: Target) -> tuple[str, float] | None:
    """What connects a GPU with the memory of its host, and bytes per second in one direction; None
    for GPUs without a memory of their own, and for other processors."""
    if target.architecture.startswith(_INTEGRATED):
        return None
    return _LINKS.get(target.architecture[:4])

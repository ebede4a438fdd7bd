"""Under which circumstances kernels are timed: their caches, what runs beside them, and controls of
the machine that are held at a value.

A time belongs to its circumstances as it belongs to its device. So each combination is a device
class of its own, with the same resources: what was measured with cold caches, beside other
kernels, or at another clock never answers for a kernel in a network, and no model, budget or
failure goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tilewright.core.records import Placement, Protocol
from tilewright.core.targets import threads_alone
from tilewright.hardware.cards import on_multiprocessors
from tilewright.hardware.gpu_controls import MULTIPROCESSORS
from tilewright.hardware.holding import ControlName, Held

Cache = Literal["usual", "warm", "cold"]
"""Where operands come from: `usual` as in a network (weights from beyond the inner caches,
activations just written), `warm` all from the caches, `cold` none."""

PROBE = "op:conv2d[c=64,h=28,k=3,out=64,pad=1]"
"""Timed every now and then in its default settings: what the machine's speed did meanwhile."""

_CACHE, _BESIDE = "+cache=", "+beside="
_SPECIAL = (_CACHE, _BESIDE, *(f"+{name}=" for name in get_args(ControlName)))
_MOST_ROTATION_BYTES = 128 << 20
_OTHERWISE: Mapping[Cache, Mapping[str, Any]] = {
    "usual": {},
    "warm": {"rotation_bytes": 0, "activations": "warm"},
    "cold": {"activations": "cold", "sample_s": 0.0, "repeats": 7},
}
"""What each state of the caches changes of the usual protocol."""


def kernel_protocol(placement: Placement) -> Protocol:
    """Weights rotate through twice the last-level cache, at most 128 MiB.

    The cap is for servers whose last-level cache is larger than any network: there a network's
    weights come from that cache, and so must a kernel's (docs/decisions/0004). On a GPU it is
    twice the second-level cache, the last one, which activations are in.
    """
    if placement.target.kind == "cuda":
        return Protocol(rotation_bytes=2 * placement.target.cache_bytes(2), activations="warm")
    last_level = placement.target.cache_bytes(3) or placement.target.cache_bytes(2)
    return Protocol(rotation_bytes=min(2 * last_level, _MOST_ROTATION_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """A placement under circumstances: the state of the caches, and how many copies of the timed
    kernel, or which `partner`, run on other cores meanwhile, and which controls of the machine are
    `held`. `usual` is the placement as networks use it."""

    usual: Placement
    cache: Cache = "usual"
    neighbours: int = 0
    partner: str = ""
    held: tuple[Held, ...] = ()

    @property
    def special(self) -> bool:
        """Whether kernels in networks do not run like this."""
        return self.cache != "usual" or self.neighbours > 0 or bool(self.partner or self.held)

    @property
    def placement(self) -> Placement:
        """The same with the device class of these circumstances, and with the multiprocessors that
        are held, which are its target's and its resources, too."""
        cache = f"{_CACHE}{self.cache}" if self.cache != "usual" else ""
        company = self.partner or self.neighbours
        beside = f"{_BESIDE}{company}" if company else ""
        held = "".join(f"+{each.text}" for each in self.held)
        device, resources = self.usual.device, self.usual.resources
        key = f"{device.class_key}{cache}{beside}{held}"
        for one in self.held:
            if one.control == MULTIPROCESSORS:
                resources = threads_alone(int(one.value))
                device = replace(device, target=on_multiprocessors(device.target, resources.cores))
        return replace(self.usual, device=replace(device, class_key=key), resources=resources)

    @property
    def protocol(self) -> Protocol:
        """How kernels are timed here.

        Warm: the same operands in every call. Cold: other memory, as much as weights rotate
        through, is written before each call, and a sample is one call.
        """
        usual = replace(kernel_protocol(self.usual), held=",".join(one.text for one in self.held))
        return replace(usual, neighbours=self.neighbours, **_OTHERWISE[self.cache])


def is_usual(class_key: str) -> bool:
    """Whether a device class is one of a device as networks use it."""
    return not any(mark in class_key for mark in _SPECIAL)


def is_beside(class_key: str, usual: str) -> bool:
    """Whether a device class is the usual one while a partner ran beside, which copies of the timed
    kernel are not, and nothing else is special there."""
    before, _, company = class_key.partition(_BESIDE)
    return before == usual and not company.isdigit() and company != "" and is_usual(company)

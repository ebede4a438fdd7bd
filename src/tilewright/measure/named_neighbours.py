"""The short names of what runs beside a kernel, and on how many cores.

streamx4      what streams memory, on four cores
compute       what computes on what its caches hold, on one
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewright.core.errors import UsageError, close_matches
from tilewright.measure.circumstances import PROBE

NONE = "none"
NEIGHBOURS: Mapping[str, str] = {"stream": "op:add[shape=1x64x512x512]", "compute": PROBE}
"""What the short names of neighbours stand for: 64 MB added to 64 MB, and a convolution whose data
the caches hold."""

_NAMED = re.compile(r"(?P<name>op:.*\]|[^\s\[\]]*?)(?:x(?P<cores>[1-9]\d*))?")


def neighbour_of(text: str, *, wanted: bool = False) -> tuple[str, int]:
    """`streamx4` → the operator of that name, and 4; no operator for `none`, which is no name where
    one is `wanted`. Raises UsageError for a name that is none of NEIGHBOURS and no `op:…` text."""
    found = _NAMED.fullmatch(text)
    name = found["name"] if found else text
    cores = int((found and found["cores"]) or 1)
    nobody = () if wanted else (NONE,)
    known = text in nobody or name in NEIGHBOURS or name.startswith("op:")
    if not (found and known):
        names = (*nobody, *NEIGHBOURS, "streamx4", NEIGHBOURS["stream"])
        raise UsageError(f"no neighbour is called {text!r}", hint=close_matches(name, names))
    return ("" if name == NONE else NEIGHBOURS.get(name, name)), cores

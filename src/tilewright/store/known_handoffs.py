"""Hand-offs in a store: they lie with the peaks of the device class, and the newest count."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.handoffs import ASSUMED, Handoff, HandoffKind
from tilewright.core.records import Placement, PlacementKey
from tilewright.core.targets import threads_alone
from tilewright.store.base import Store

HANDOFF_CORES = 2
"""Between how many cores hand-offs are measured, and under which number they are kept."""
_SECONDS = "", "_low", "_high"
_QUARTILES = 50, 25, 75
_MOST_S = 1.0
_LATEST_S = 2.0**33
"""After 1970: in the year 2242."""
_FEWEST = 5


def keep_handoff(
    store: Store, placement: Placement, kind: HandoffKind, samples_s: Sequence[float]
) -> bool:
    """Keep the median and the quartiles of measured hand-offs for a machine's class, and when that
    was; nothing where there are fewer than five, or where one of these is no time. Whether they are
    kept."""
    if len(samples_s) < _FEWEST:
        return False
    found = [float(each) for each in np.percentile(samples_s, _QUARTILES)]
    if not all(map(_is_time, found)):
        return False
    store.add_device(placement.device)
    for part, value in zip(_SECONDS, found, strict=True):
        store.add_peak(_key(placement), f"handoff_{kind}{part}_s", value)
    store.add_peak(_key(placement), f"handoff_{kind}_since_1970_s", time.time())
    return True


def known_handoff(store: Store, placement: Placement, kind: HandoffKind) -> Handoff:
    """The hand-off that was measured on a machine of this class, else the assumed one: also where
    the median does not lie between the quartiles, which are of another measurement then, as two
    processes wrote at the same time or one was stopped. Raises ModelError where what is kept is no
    time."""
    key = _key(placement)
    found = [store.peak(key, f"handoff_{kind}{part}_s") for part in _SECONDS]
    when_s = store.peak(key, f"handoff_{kind}_since_1970_s")
    seconds, low_s, high_s = found
    if seconds is None or low_s is None or high_s is None or when_s is None:
        return ASSUMED[kind]
    if not (_is_time(seconds) and 0.0 <= when_s < _LATEST_S):
        raise ModelError(
            f"the database says that a hand-off between {kind} takes {seconds:g} s, "
            f"measured {when_s:g} s after 1970, which is no time",
            hint="`tilewright profile MODEL --beside OTHER` measures it anew.",
        )
    if not 0.0 < low_s <= seconds <= high_s < _MOST_S:
        return ASSUMED[kind]
    day = datetime.fromtimestamp(when_s, UTC).date().isoformat()
    return Handoff(kind=kind, seconds=seconds, low_s=low_s, high_s=high_s, day=day)


def _is_time(seconds: float) -> bool:
    return 0.0 < seconds < _MOST_S


def _key(placement: Placement) -> PlacementKey:
    return replace(placement, resources=threads_alone(HANDOFF_CORES)).key

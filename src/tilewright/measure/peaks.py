"""What a device was measured to reach."""

from __future__ import annotations

from tilewright.core.records import Placement
from tilewright.cost.floors import Peaks
from tilewright.measure.base import Measurer
from tilewright.store.base import Store


def measured_peaks(store: Store, placement: Placement, measurer: Measurer) -> Peaks:
    """The best this device has ever reached: what the store knows, and one more look.

    A disturbed look finds too little, never too much, so the largest value is kept.
    """
    best: dict[str, float] = {}
    for name, value in measurer.peaks().items():
        known = store.peak(placement.key, name) or 0.0
        if value > known:
            store.add_peak(placement.key, name, value)
        best[name] = max(value, known)
    return Peaks(**best)

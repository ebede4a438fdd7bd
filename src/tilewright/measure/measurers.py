"""Which measurer a placement needs."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.errors import UsageError
from tilewright.core.records import Placement
from tilewright.hardware.meters import Meter
from tilewright.hardware.remote import remote_place
from tilewright.measure.base import Measurer
from tilewright.measure.beside import CrowdedMeasurer
from tilewright.measure.circumstances import Place
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.kernels import KernelMeasurer
from tilewright.measure.remote import RemoteMeasurer
from tilewright.measure.tracker import Tracker


def open_measurer(placement: Placement, *, seed: int) -> Measurer:
    """The measurer for a placement: this machine's processes, or those of a tracker's devices."""
    place = remote_place(placement.device)
    if place is None:
        return KernelMeasurer(placement, seed=seed)
    key, host, port = place
    return RemoteMeasurer(placement, Tracker(host=host, port=port), key, seed=seed)


def opened(placement: Placement, seed: int) -> Measurer:
    """The same, for who takes the opening of measurers as an argument."""
    return open_measurer(placement, seed=seed)


def opened_in(place: Place, seed: int) -> Measurer:
    """The measurer of a placement under circumstances."""
    if place.neighbours:
        return CrowdedMeasurer(place.placement, place.neighbours, seed=seed)
    return open_measurer(place.placement, seed=seed)


def opened_with(meter: Meter) -> Callable[[Place, int], Measurer]:
    """Opens measurers that also tell the energy of a call. They raise UsageError for devices
    elsewhere: meters are read on this machine."""

    def metered(place: Place, seed: int) -> Measurer:
        if remote_place(place.placement.device) is not None:
            raise UsageError(
                "--power reads a meter of this machine, and rpc: targets run on others.",
                hint="Measure the energy of a board where it is: run tilewright there.",
            )
        return KernelMeasurer(place.placement, seed=seed, energy=KernelEnergy(meter=meter))

    return metered

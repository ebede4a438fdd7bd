"""What measures kernels and runs networks for a placement: its device's access opens it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.errors import UsageError
from tilewright.core.records import Placement
from tilewright.hardware.meters import Meter
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.base import Measurer
from tilewright.measure.beside import CrowdedMeasurer
from tilewright.measure.circumstances import Place
from tilewright.measure.energy import KernelEnergy
from tilewright.measure.networks import NetworkRunner


def open_measurer(placement: Placement, *, seed: int) -> Measurer:
    """The measurer of kernels for a placement."""
    return access_to(placement.device).measurer(placement, seed=seed)


def open_networks(placement: Placement) -> NetworkRunner:
    """What compiles, runs and times whole networks for a placement."""
    return access_to(placement.device).networks(placement)


def opened(placement: Placement, seed: int) -> Measurer:
    """The same as `open_measurer`, for who takes the opening of measurers as an argument."""
    return open_measurer(placement, seed=seed)


def opened_in(place: Place, seed: int) -> Measurer:
    """The measurer of a placement under circumstances."""
    if place.neighbours:
        return CrowdedMeasurer(place.placement, place.neighbours, seed=seed)
    return open_measurer(place.placement, seed=seed)


def require_here(placement: Placement) -> None:
    """Raise UsageError for a device elsewhere: meters are read on this machine."""
    access = access_to(placement.device)
    if not access.here:
        raise UsageError(
            f"--power reads a meter of this machine, and {access.name} targets do not run on it.",
            hint="Measure the energy of a board where it is: run tilewright there.",
        )


def opened_with(meter: Meter) -> Callable[[Place, int], Measurer]:
    """Opens measurers that also tell the energy of a call. They raise UsageError for devices
    elsewhere: meters are read on this machine."""

    def metered(place: Place, seed: int) -> Measurer:
        require_here(place.placement)
        access = access_to(place.placement.device)
        return access.measurer(place.placement, seed=seed, energy=KernelEnergy(meter=meter))

    return metered

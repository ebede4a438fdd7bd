"""What measures kernels and runs networks for a placement: its device's access opens it."""

from __future__ import annotations

from tilewright.core.errors import UsageError
from tilewright.core.records import Placement
from tilewright.hardware.meters import KernelEnergy, Meter
from tilewright.measure.accesses.registry import access_to
from tilewright.measure.base import Measurer
from tilewright.measure.beside import CrowdedMeasurer
from tilewright.measure.circumstances import Circumstances
from tilewright.measure.networks import NetworkRunner


def open_measurer(placement: Placement, seed: int) -> Measurer:
    """The measurer of kernels for a placement."""
    return access_to(placement.device).measurer(placement, seed=seed)


def open_networks(placement: Placement) -> NetworkRunner:
    """What compiles, runs and times whole networks for a placement."""
    return access_to(placement.device).networks(placement)


def require_here(placement: Placement) -> None:
    """Raise UsageError for a device elsewhere: meters are read on this machine."""
    access = access_to(placement.device)
    if not access.here:
        raise UsageError(
            f"--power reads a meter of this machine, and {access.name} targets do not run on it.",
            hint="Measure the energy of a board where it is: run tilewright there.",
        )


def open_measurer_under(
    circumstances: Circumstances, seed: int, meter: Meter | None = None
) -> Measurer:
    """The measurer of a placement under circumstances; with a `meter` it also tells the energy of a
    call, and UsageError is raised for a device elsewhere."""
    placement = circumstances.placement
    if circumstances.neighbours:
        return CrowdedMeasurer(placement, circumstances.neighbours, seed=seed)
    if meter is None:
        return open_measurer(placement, seed)
    require_here(placement)
    return access_to(placement.device).measurer(
        placement, seed=seed, energy=KernelEnergy(meter=meter)
    )

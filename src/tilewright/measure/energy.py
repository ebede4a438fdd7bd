"""Energy of single kernels: what a measurer with a meter asks for after it has timed one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.core.processes import ChildError, RemoteError
from tilewright.core.records import EnergyUse
from tilewright.hardware.meters import Meter, Reading, measure_energy, measure_idle
from tilewright.hardware.meters.energy import Work


@dataclass(frozen=True, kw_only=True)
class KernelEnergy:
    """Energy of kernels by one meter. Idle power is read once, before the first kernel."""

    meter: Meter
    sleep: Callable[[float], None] = field(default=time.sleep)

    @cached_property
    def idle(self) -> Reading:
        """A window in which nothing runs."""
        return measure_idle(self.meter, sleep=self.sleep)

    def of(self, work: Work) -> EnergyUse:
        """Energy of one call of `work`; a kernel that fails meanwhile has none, and the reason."""
        lost = self.meter.unavailable()
        if lost is not None:
            return EnergyUse(method=self.meter.method, reason=lost.reason)
        try:
            return measure_energy(self.meter, work, idle=self.idle, sleep=self.sleep)
        except (ChildError, RemoteError) as error:
            first = str(error).splitlines()[0]
            reason = f"The kernel failed while it ran in a loop: {first}"
            return EnergyUse(method=self.meter.method, reason=reason)

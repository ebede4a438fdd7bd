"""NVIDIA GPUs through NVML: the energy counter where there is one, else power, polled.

The counter (Volta and later) counts millijoules of the whole board since the driver was loaded.
Where it is missing, `nvmlDeviceGetPowerUsage` is polled. Needs the package nvidia-ml-py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.hardware.gpus import nvml_library
from tilewright.hardware.meters.base import (
    Counter,
    Meter,
    MeterLost,
    NullMeter,
    PollingMeter,
    no_meter,
)
from tilewright.hardware.meters.stepping import SteppingMeter

_UPDATE_S = 0.1
"""Drivers bring power up to date every 20 to 100 ms."""
_ASKED_S = 1e-3
"""How often the counter is asked whether it went on."""
_MILLI = 1e-3


def nvml_meter(
    index: int = 0, library: Any = None, clock: Callable[[], float] = time.monotonic
) -> Meter:
    """A meter of one GPU; a null meter where NVML, the driver or the GPU is missing.

    `library` is nvidia-ml-py's module, imported when it is not given.
    """
    library = library or nvml_library()
    if library is None:
        return no_meter(
            "The Python package nvidia-ml-py is not installed.",
            "pip install 'tilewright[nvml]' adds it.",
        )
    try:
        library.nvmlInit()
        handle = library.nvmlDeviceGetHandleByIndex(index)
        name = library.nvmlDeviceGetName(handle)
    except library.NVMLError as error:
        return no_meter(f"NVML gives no GPU {index}: {error}.")

    def ask(function: str) -> float:
        """Joules since the driver was loaded, or watts of the board."""
        try:
            return getattr(library, function)(handle) * _MILLI
        except library.NVMLError as error:
            raise MeterLost(f"{function}: {error}.") from None

    counting = SteppingMeter(
        method=f"nvml: energy counter of {name}",
        update_s=_ASKED_S,
        counter=Counter(partial(ask, "nvmlDeviceGetTotalEnergyConsumption")),
        clock=clock,
    )
    if counting.unavailable() is None:
        return counting
    polling = PollingMeter(
        method=f"nvml: power of {name}, polled",
        update_s=_UPDATE_S,
        power_w=partial(ask, "nvmlDeviceGetPowerUsage"),
        clock=clock,
    )
    lost = polling.unavailable()
    return polling if lost is None else NullMeter(lost=lost)

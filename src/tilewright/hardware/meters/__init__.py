"""Meters of power and energy: one module per kind of sensor.

`named_meter` gives the one that was asked for, `auto` the best there is for the CPU. Where there
is none, it is a null meter that says why.
"""

from tilewright.hardware.meters.base import Meter, MeterLost, NullMeter, Reading
from tilewright.hardware.meters.energy import KernelEnergy, measure_energy, measure_idle
from tilewright.hardware.meters.nvml import nvml_meter
from tilewright.hardware.meters.registry import METERS, find_cpu_meter, meter_of, named_meter

__all__ = [
    "METERS",
    "KernelEnergy",
    "Meter",
    "MeterLost",
    "NullMeter",
    "Reading",
    "find_cpu_meter",
    "measure_energy",
    "measure_idle",
    "meter_of",
    "named_meter",
    "nvml_meter",
]

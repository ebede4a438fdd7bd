"""What the processor is, and how it is reached."""

from __future__ import annotations

from tilewright.compiler.builders.registry import builder_for
from tilewright.core.element_types import ElementType
from tilewright.core.records import Device, Placement
from tilewright.core.results import TargetRow
from tilewright.core.targets import Binding, ComputeUnit, MemoryLevel, Target, threads_alone
from tilewright.measure.simulation import SimulatedMeasurer, SimulatedNetworks

KIND = "systolic"
SCRATCHPAD_BYTES = 16 << 10
CLOCK_HZ = 1e9
BYTES_PER_CYCLE = 8

EXTENDED = ElementType(
    name="longdouble", bytes=16, kind="float", unit_roundoff=2.0**-53, accumulator="longdouble"
)
"""Numpy's widest float, whatever the machine makes of it."""


def _array(element: str, operations_per_cycle: int) -> ComputeUnit:
    return ComputeUnit(
        name="systolic array",
        element=element,
        accumulator=element,
        granule=(4, 4, 4),
        operations_per_cycle=operations_per_cycle,
    )


TARGET = Target(
    kind=KIND,
    model="toy",
    architecture="systolic",
    features=(),
    vector_bytes=0,
    vector_registers=0,
    units=(_array("float32", 32), _array(EXTENDED.name, 128)),
    memory=(MemoryLevel(name="scratchpad", bytes=SCRATCHPAD_BYTES),),
    cores=1,
    tvm='{"kind": "toy"}',
)
PLACEMENT = Placement(
    device=Device(class_key="toy-systolic-1", instance="toy0", target=TARGET, access="toy"),
    resources=threads_alone(1),
    binding=Binding(),
)
_PEAKS = {"flop_per_s": 128e9, "bytes_per_s": 8e9, "cache_bytes_per_s": 64e9}


class ToyAccess:
    """The processor, which is simulated in this process."""

    name = "toy"
    here = False
    runs_networks = True
    note = "Times of the toy accelerator are cycles of its simulation."

    def placement(self, target, tracker, threads):
        return PLACEMENT if target.strip() == "toy" else None

    def rows(self, threads):
        detail = "a systolic array, simulated"
        return (TargetRow(name="toy", usable=True, detail=detail, target=TARGET.tvm, threads=1),)

    def refusal(self, placement):
        return None

    def measurer(self, placement, *, seed, energy=None):
        return SimulatedMeasurer(placement, builder_for, _PEAKS)

    def networks(self, placement):
        return SimulatedNetworks(placement, builder_for)


ACCESS = ToyAccess()

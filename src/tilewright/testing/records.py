"""Made-up records for the suite of stores: numbered, each a second later than the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.core.forms import PLAIN
from tilewright.core.records import (
    Candidate,
    EnergyUse,
    Failure,
    Measurement,
    NetworkMeasurement,
    Placement,
    Run,
    ShippedPlan,
)
from tilewright.core.targets import parse_resources
from tilewright.testing import landscapes
from tilewright.testing.implementations import made_up_placement, single

HERE = made_up_placement()
ELSEWHERE = (
    replace(HERE, device=replace(HERE.device, class_key="another", instance="another")),
    replace(HERE, resources=parse_resources("4t")),
    replace(HERE, resources=parse_resources("2t:big")),
)
"""Another device class, other resources, other cores."""
WORKLOAD = single("relu", (1, 16, 8, 8))
OTHER = single("relu", (2, 16, 8, 8))


def candidate(number: int = 0) -> Candidate:
    """One of many candidates."""
    settings = (("tile", number), ("unroll", True))
    return Candidate(implementation="direct", settings=settings, forms=(PLAIN, PLAIN))


def measurement(number: int = 0, at: Placement = HERE, **fields: Any) -> Measurement:
    """A measurement `number` seconds after 1970; `fields` are set in it."""
    made = landscapes.measured(candidate(number), 1e-3 + number, 2e-3 + number)
    energy = EnergyUse(method="made up", energy_j=0.5, power_w=None, reason="no power")
    return replace(
        made,
        workload_key=WORKLOAD.key,
        device_class=at.key.device_class,
        resources=at.resources,
        kernel_hash="h1",
        instance="box",
        created_at=float(number),
        energy=energy if number % 2 else None,
        **fields,
    )


def failure(number: int = 0, at: Placement = HERE) -> Failure:
    """A failure of the same time."""
    return replace(
        landscapes.failed(candidate(number)),
        workload_key=WORKLOAD.key,
        device_class=at.key.device_class,
        resources=at.resources,
        message='it "broke"\nin two lines: ü',
        created_at=float(number),
    )


def run(number: int = 0, at: Placement = HERE) -> Run:
    """A run on a network that has begun."""
    return Run(
        command="optimize",
        model="zoo:one",
        network_key="network",
        device_class=at.key.device_class,
        resources=at.resources,
        seed=number,
        state="running",
        created_at=float(number),
    )


def shipped(number: int = 0, at: Placement = HERE, network: str = "network") -> ShippedPlan:
    """What shipped for a network."""
    return ShippedPlan(
        network_key=network,
        device_class=at.key.device_class,
        resources=at.resources,
        model="zoo:one",
        plan={"number": number, "calls": [{"name": "conv", "layouts": ["plain"]}]},
        latency_s=0.002,
        numbers={"max_rel_error": 1e-6, "speedup": None},
        created_at=float(number),
    )


def network(number: int = 0, at: Placement = HERE) -> NetworkMeasurement:
    """What was measured of a whole network."""
    return NetworkMeasurement(
        network_key="network",
        device_class=at.key.device_class,
        resources=at.resources,
        model="zoo:one",
        latency_s=0.002,
        planned_bytes=1 << 40,
        measured_bytes=None,
        memory_method="",
        energy=None,
        created_at=float(number),
    )

"""A made-up implementation with a landscape of times, and a measurer that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.core.records import (
    Candidate,
    CpuFacts,
    Device,
    Failure,
    Measurement,
    Outcome,
    Protocol,
    Settings,
)
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.base import FactColumn, Knob

DEVICE = Device(
    class_key="test",
    instance="test",
    target=json.dumps({"kind": "llvm"}),
    threads=2,
    cpus=(0, 1),
    cpu=CpuFacts(
        model="test",
        architecture="test",
        features=(),
        vector_bytes=64,
        vector_registers=32,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=16 << 20,
        physical_cores=2,
    ),
)
LAYOUTS = ("plain", "plain")
Landscape = Callable[[Settings], float]


def workload(extent: int = 8) -> Workload:
    """A relu of this many elements; different extents are different tasks."""
    step = Step(operator="relu", inputs=(0,))
    return Workload(arguments=(Argument(type=TensorType((extent,))),), steps=(step,))


class MadeUp:
    """A spec with the knobs given; its estimate is `guess`, the truth is elsewhere."""

    anchors = frozenset({"*"})

    def __init__(
        self,
        name: str,
        knobs: Mapping[str, tuple[int | str | bool, ...]],
        guess: Landscape,
        allowed: Callable[[Settings], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self._knobs = tuple(Knob(name=key, values=values) for key, values in knobs.items())
        self._guess = guess
        self._allowed = allowed

    def applies(self, workload: Workload, device: Device) -> bool:
        return True

    def result_blocks(self, workload: Workload, device: Device) -> tuple[int, ...]:
        return (0,)

    def knobs(self, workload: Workload, device: Device, layouts: tuple[str, ...]):
        return self._knobs

    def valid(self, workload, device, layouts, settings: Settings) -> bool:
        return self._allowed(settings)

    def facts(
        self, workload, device, layouts, settings: Sequence[Settings]
    ) -> Mapping[str, FactColumn]:
        return {
            "estimate_s": np.array([self._guess(s) for s in settings], dtype=np.float64),
            "parallel_extent": np.ones(len(settings)),
        }

    def error_bound(self, workload: Workload) -> float:
        return 1e-5

    def packed_shapes(self, workload, candidate):
        return {}

    def pack(self, workload, candidate, constants):
        return constants


def measured(task: Workload, candidate: Candidate, seconds: float, **named) -> Measurement:
    """A measurement of a candidate that took so long."""
    return Measurement(
        workload_key=task.key,
        candidate=candidate,
        device_class="test",
        protocol=named.pop("protocol", Protocol()),
        kernel_hash="h",
        samples_s=(seconds,),
        build_s=0.1,
        **named,
    )


def failed(task: Workload, candidate: Candidate, kind: str = "crash", **named) -> Failure:
    """A failure of a candidate."""
    return Failure(
        workload_key=task.key,
        candidate=candidate,
        device_class="test",
        kind=kind,  # type: ignore[arg-type]
        message="no",
        **named,
    )


class FakeMeasurer:
    """Times candidates by a landscape per task; None there is a failure."""

    def __init__(self, truth: Callable[[Workload, Candidate], float | None]) -> None:
        self.truth = truth
        self.asked: list[tuple[str, Candidate]] = []
        self.log: list[str] = []

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        protocol: Protocol,
        *,
        run_id: int | None = None,
        finished: Callable[[Outcome], None] = lambda _: None,
        **_more: object,
    ) -> list[Outcome]:
        self.log.append("measure")
        outcomes: list[Outcome] = []
        for candidate in candidates:
            self.asked.append((workload.key, candidate))
            seconds = self.truth(workload, candidate)
            outcomes.append(
                failed(workload, candidate, run_id=run_id)
                if seconds is None
                else measured(workload, candidate, seconds, protocol=protocol, run_id=run_id)
            )
            finished(outcomes[-1])
        return outcomes


class FakeStore:
    """Keeps outcomes in a list."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.kept: list[Outcome] = []
        self.log = log if log is not None else []

    def add(self, outcomes) -> None:
        self.log.append("store")
        self.kept += list(outcomes)

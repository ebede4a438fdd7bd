"""A made-up device, outcomes on it, and a measurer that takes its times from a formula."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from helpers.fakes.placements import altered
from tilewright.core.records import (
    Candidate,
    Failure,
    FailureKind,
    Measurement,
    Outcome,
    Protocol,
)
from tilewright.graph.workload import Workload
from tilewright.testing import landscapes
from tilewright.testing.implementations import made_up_placement

PLACEMENT = altered(made_up_placement(), tvm=json.dumps({"kind": "llvm"}))

OF_PLACEMENT: dict[str, Any] = {
    "device_class": PLACEMENT.device.class_key,
    "resources": PLACEMENT.resources,
}
"""What a record says of where it is from."""


def measured(
    workload: Workload, candidate: Candidate, *samples_s: float, **named: Any
) -> Measurement:
    """A measurement with these samples; `named` are other fields."""
    shared = {"workload_key": workload.key, **OF_PLACEMENT, "kernel_hash": "h"}
    return replace(landscapes.measured(candidate, *samples_s), **{**shared, **named})


def failed(
    workload: Workload, candidate: Candidate, kind: FailureKind = "crash", **named: Any
) -> Failure:
    """A failure of a candidate; `named` are other fields."""
    shared = {"workload_key": workload.key, **OF_PLACEMENT, "kind": kind}
    return replace(landscapes.failed(candidate), **{**shared, **named})


class FakeMeasurer:
    """Times candidates by `truth`; None there is a failure. `asked`, `protocols` and `log` keep
    what was wanted of it, `ahead` what was to be built `at_once`."""

    def __init__(
        self, truth: Callable[[Workload, Candidate], float | None], at_once: int = 1
    ) -> None:
        self.truth = truth
        self.at_once = at_once
        self.ahead: list[list[tuple[str, Candidate]]] = []
        self.asked: list[tuple[str, Candidate]] = []
        self.protocols: list[Protocol] = []
        self.log: list[str] = []

    def build_ahead(self, kernels: Sequence[tuple[Workload, Candidate]]) -> None:
        """Note what would be built."""
        self.ahead.append([(workload.key, candidate) for workload, candidate in kernels])

    def of(self, workload: Workload) -> list[Candidate]:
        """The candidates of a workload that were measured, in order."""
        return [candidate for key, candidate in self.asked if key == workload.key]

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
        """One outcome per candidate, told as soon as it is made."""
        self.log.append("measure")
        outcomes: list[Outcome] = []
        for candidate in candidates:
            self.asked.append((workload.key, candidate))
            self.protocols.append(protocol)
            seconds = self.truth(workload, candidate)
            outcomes.append(
                failed(workload, candidate, "build", run_id=run_id)
                if seconds is None
                else measured(workload, candidate, seconds, protocol=protocol, run_id=run_id)
            )
            finished(outcomes[-1])
        return outcomes

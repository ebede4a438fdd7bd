"""Convolutions with several epilogues, and a measurer that makes up times and runs in numpy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.core.records import (
    Candidate,
    CpuFacts,
    Device,
    Failure,
    Measurement,
    Outcome,
    Protocol,
)
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import attributes
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure.base import TimeSpent
from tilewright.session.preparation import Task
from tilewright.session.reporting import Peaks

DEVICE = Device(
    class_key="test",
    instance="test",
    target=json.dumps({"kind": "llvm"}),
    threads=2,
    cpus=(0, 1),
    cpu=CpuFacts(
        model="test",
        architecture="x86_64",
        features=(),
        vector_bytes=64,
        vector_registers=32,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=16 << 20,
        physical_cores=2,
    ),
)
PEAKS = Peaks(flop_per_s=1e12, bytes_per_s=1e11, cache_bytes_per_s=1e12)
DIRECT, WINOGRAD = "conv2d_direct", "conv2d_winograd"
BLOCKED = "blocked16"


def convolution(*after: str, channels: int = 32, filters: int = 32, extent: int = 8) -> Workload:
    """A 3×3 convolution with constant weights; `after` are steps behind it: `add` adds a bias per
    channel, `plus` another tensor of the result's shape, others take the value alone."""
    shape = (1, filters, extent, extent)
    arguments = [
        Argument(type=TensorType((1, channels, extent, extent))),
        Argument(type=TensorType((filters, channels, 3, 3)), role="constant"),
    ]
    for name in after:
        if name == "add":
            arguments.append(Argument(type=TensorType((filters, 1, 1)), role="constant"))
        elif name == "plus":
            arguments.append(Argument(type=TensorType(shape)))
    convolve = attributes(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=1)
    steps = [Step(operator="conv2d", inputs=(0, 1), attributes=convolve)]
    value, operand = len(arguments), 2
    for name in after:
        if name in ("add", "plus"):
            steps.append(Step(operator="add", inputs=(value, operand)))
            operand += 1
        else:
            steps.append(Step(operator=name, inputs=(value,)))
        value += 1
    return Workload(arguments=tuple(arguments), steps=tuple(steps))


def relu() -> Workload:
    """A subgraph without an anchor."""
    argument = Argument(type=TensorType((1, 32, 8, 8)))
    return Workload(arguments=(argument,), steps=(Step(operator="relu", inputs=(0,)),))


def task(workload: Workload, *, name: str = "", count: int = 1, layout: str = BLOCKED) -> Task:
    """A task whose data and result are in `layout`, constants plain."""
    layouts = tuple(
        layout if argument.role == "data" else "plain" for argument in workload.arguments
    )
    key = (workload.key, (*layouts, layout))
    return Task(
        key=key,
        name=name or workload.key,
        workload=workload,
        layouts=(*layouts, layout),
        count=count,
        nodes=(),
    )


def tasks(*made: Task) -> dict[tuple[str, tuple[str, ...]], Task]:
    return {one.key: one for one in made}


def took(workload: Workload, candidate: Candidate, seconds: float, **named) -> Measurement:
    return Measurement(
        workload_key=workload.key,
        candidate=candidate,
        device_class="test",
        protocol=named.pop("protocol", Protocol()),
        kernel_hash="h",
        samples_s=(seconds,),
        build_s=0.1,
        **named,
    )


class NumpyMeasurer:
    """Times by `truth`, None there is a failure; results by numpy, wrong for `wrong` ones."""

    def __init__(
        self,
        truth: Callable[[Workload, Candidate], float | None],
        wrong: Callable[[Candidate], bool] = lambda _: False,
    ) -> None:
        self.truth, self.wrong = truth, wrong
        self.asked: list[tuple[str, Candidate]] = []
        self.protocols: list[Protocol] = []
        self.evaluated: list[tuple[str, Candidate]] = []
        self.spent = TimeSpent()

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
        outcomes: list[Outcome] = []
        for candidate in candidates:
            self.asked.append((workload.key, candidate))
            self.protocols.append(protocol)
            seconds = self.truth(workload, candidate)
            outcomes.append(
                self.failure(workload, candidate, "build", "no")
                if seconds is None
                else took(workload, candidate, seconds, protocol=protocol, run_id=run_id)
            )
            finished(outcomes[-1])
        return outcomes

    def evaluate(self, workload: Workload, candidate: Candidate, arrays) -> np.ndarray:
        self.evaluated.append((workload.key, candidate))
        result = run_workload(workload, arrays)
        return result + 1 if self.wrong(candidate) else result

    def failure(self, workload: Workload, candidate: Candidate, kind, message: str) -> Failure:
        return Failure(
            workload_key=workload.key,
            candidate=candidate,
            device_class="test",
            kind=kind,
            message=message,
        )

    def current_hashes(self, kernels) -> list[str]:
        return ["h" for _ in kernels]

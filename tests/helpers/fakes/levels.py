"""Convolutions with several epilogues, and a measurer that makes up times and runs in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from helpers.fakes.measuring import FakeMeasurer, failed
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.records import Candidate, Failure, FailureKind
from tilewright.cost.floors import Peaks
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import Array, TensorType, attributes
from tilewright.graph.tasks import Task
from tilewright.graph.workload import Argument, Step, Workload

PEAKS = Peaks(flop_per_s=1e12, bytes_per_s=1e11, cache_bytes_per_s=1e12)
DIRECT, WINOGRAD = "conv2d_direct", "conv2d_winograd"
BLOCKED = blocked(16)


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


def task(workload: Workload, *, name: str = "", count: int = 1, form: Form = BLOCKED) -> Task:
    """A task whose data and result are in `form`, constants plain."""
    forms = tuple(form if argument.role == "data" else PLAIN for argument in workload.arguments)
    key = (workload.key, (*forms, form))
    return Task(
        key=key,
        name=name or workload.key,
        workload=workload,
        forms=(*forms, form),
        count=count,
        nodes=(),
    )


def tasks(*made: Task) -> dict[tuple[str, tuple[Form, ...]], Task]:
    return {one.key: one for one in made}


class NumpyMeasurer(FakeMeasurer):
    """Times by `truth`, None there is a failure; results by numpy, wrong for `wrong` ones."""

    def __init__(
        self,
        truth: Callable[[Workload, Candidate], float | None],
        wrong: Callable[[Candidate], bool] = lambda _: False,
    ) -> None:
        super().__init__(truth)
        self.wrong = wrong
        self.evaluated: list[tuple[str, Candidate]] = []

    def evaluate(
        self, workload: Workload, candidate: Candidate, arrays: Sequence[Array]
    ) -> Array | Failure:
        self.evaluated.append((workload.key, candidate))
        result = run_workload(workload, arrays)
        return np.add(result, 1) if self.wrong(candidate) else result

    def side_by_side(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [function(item) for item in items]

    def failure(
        self, workload: Workload, candidate: Candidate, kind: FailureKind, message: str
    ) -> Failure:
        return failed(workload, candidate, kind, message=message)

    def current_hashes(self, kernels: Sequence[tuple[Workload, Candidate]]) -> list[str | None]:
        return ["h" for _ in kernels]

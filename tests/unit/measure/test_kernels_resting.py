"""When the workers' threads are waited for: only where something else is timed next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.fakes.measuring import PLACEMENT
from tilewright.core.forms import PLAIN
from tilewright.core.processes import ChildCrash
from tilewright.core.records import Candidate, Failure, Protocol
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.measure import kernels
from tilewright.measure.kernels import KernelMeasurer

pytestmark = pytest.mark.regression

RELU = Workload(
    arguments=(Argument(type=TensorType((4,))),), steps=(Step(operator="relu", inputs=(0,)),)
)


def candidate(number: int) -> Candidate:
    return Candidate(implementation="i", settings=(("n", number),), forms=(PLAIN, PLAIN))


class Worker:
    """A worker process that answers at once; `said` keeps (worker, request) of all of them."""

    said: list[tuple[int, str]]
    crash: Callable[[str], bool]
    made = 0

    def __init__(self, *_arguments: object, **_named: object) -> None:
        self.number = Worker.made
        Worker.made += 1
        self.pid: int | None = None
        self.environment: dict[str, str] = {}

    def launch(self) -> None:
        self.pid = self.pid or 1000 + self.number

    def get_ready(self) -> None:
        self.launch()

    def stop(self) -> None:
        self.pid = None

    def request(self, message: tuple[Any, ...], _timeout_s: float) -> Any:
        self.launch()
        name = message[0]
        Worker.said.append((self.number, name))
        if Worker.crash(name):
            self.stop()
            raise ChildCrash(-11, "gone")
        answers = {
            "build": {"kernel_hash": "h", "build_s": 0.01},
            "measure": [1e-3],
            "evaluate": np.zeros(4, np.float32),
            "peaks": {},
        }
        return answers.get(name)


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch):
    Worker.said, Worker.made, Worker.crash = [], 0, lambda _: False
    monkeypatch.setattr(kernels, "Worker", Worker)
    with KernelMeasurer(PLACEMENT, builders=2) as opened:
        yield opened


def requests(*names: str) -> list[tuple[int, str]]:
    return [said for said in Worker.said if said[1] in names]


def test_checks_do_not_wait_for_threads(measurer: KernelMeasurer) -> None:
    def check(number: int) -> Any:
        return measurer.evaluate(RELU, candidate(number), [np.zeros(4, np.float32)])

    found = measurer.side_by_side(check, range(10))
    assert len(found) == 10 and all(isinstance(result, np.ndarray) for result in found)
    assert len(requests("evaluate")) == 10 and not requests("settle")


def test_a_worker_is_timed_while_the_others_rest(measurer: KernelMeasurer) -> None:
    for number in range(2):
        measurer.measure(RELU, [candidate(2 * number), candidate(2 * number + 1)], Protocol())
    order = requests("measure", "settle")
    assert order == [
        *[(0, "measure"), (0, "settle"), (1, "measure")],
        *[(1, "settle"), (0, "measure"), (0, "settle"), (1, "measure")],
    ]


def test_after_a_rest_nobody_is_waited_for_again(measurer: KernelMeasurer) -> None:
    measurer.measure(RELU, [candidate(0), candidate(1)], Protocol())
    measurer.rest()
    said = len(requests("settle"))
    measurer.rest()
    assert len(requests("settle")) == said == 2


def test_a_crash_while_checking_costs_one_failure(measurer: KernelMeasurer) -> None:
    crashes = iter([False, True, *[False] * 20])
    Worker.crash = lambda name: name == "evaluate" and next(crashes)
    found = measurer.side_by_side(
        lambda n: measurer.evaluate(RELU, candidate(n), [np.zeros(4, np.float32)]), range(6)
    )
    assert sum(isinstance(result, Failure) for result in found) == 1


def test_the_kernels_built_are_counted(measurer: KernelMeasurer) -> None:
    measurer.measure(RELU, [candidate(n) for n in range(5)], Protocol())
    assert measurer.spent.kernels == 5
    assert measurer.spent.kernels_s == pytest.approx(0.05)

"""What kernels tell that only pretend to run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.fakes.placements import altered
from tilewright.compiler.builders import base
from tilewright.compiler.builders.base import SimulatedBuilder, SimulatedKernel
from tilewright.compiler.builders.null import BUILDER
from tilewright.core.errors import TargetError, TilewrightError
from tilewright.core.forms import PLAIN, blocked
from tilewright.core.records import Candidate, Protocol
from tilewright.core.targets import threads_alone
from tilewright.testing.implementations import made_up_placement, single

PLACEMENT = made_up_placement()
RELU = single("relu", (1, 16, 8, 8))


class Clock:
    """A clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    module = SimpleNamespace(sleep=found.sleep, perf_counter=found.perf_counter)
    monkeypatch.setattr(base, "time", module)
    return found


def kernel(seconds: float) -> SimulatedKernel:
    return SimulatedKernel("hash", lambda arrays: arrays[0] + arrays[1], seconds)


def test_samples_lie_a_hundredth_about_the_time_that_it_tells() -> None:
    told = kernel(2e-3)
    samples_s = told.time(Protocol(repeats=5), 0, 1.0)
    assert samples_s == pytest.approx([1.98e-3, 2e-3, 2.02e-3, 1.98e-3, 2e-3])
    assert told.time(Protocol(repeats=5), 7, 1e-9) == samples_s, "always alike"
    assert len(told.time(Protocol(repeats=0), 0, 1.0)) == 1
    assert (told.kernel_hash, told.build_s) == ("hash", 0.0)
    assert told.run([np.array([1, 2]), np.array([3, 4])]).tolist() == [4, 6]


@pytest.mark.parametrize(("seconds", "calls"), [(0.5, 50), (0.015, 1), (0.001, 1)])
def test_as_many_calls_as_fit_while_a_meter_is_read(
    clock: Clock, seconds: float, calls: int
) -> None:
    assert kernel(0.01).repeat(Protocol(), 0, seconds) == calls
    assert clock.now_s == 100.0 + seconds


@pytest.mark.parametrize(("looks", "calls"), [(8, 4), (0, 1)])
def test_it_keeps_running_while_that_is_wanted(clock: Clock, looks: int, calls: int) -> None:
    """A thousandth of a second passes between looks; calls take two and a bit less."""
    left = iter(range(looks))
    begun: list[float] = []
    watch = (lambda: next(left, None) is not None, lambda: begun.append(clock.now_s))
    (burst,) = kernel(1.999e-3).keep_running(Protocol(), 0, watch)
    assert (burst.calls, burst.busy_s) == (calls, calls * 1.999e-3)
    assert (burst.begin_s, burst.end_s) == (100.0, clock.now_s)
    assert begun == [100.0], "told before any time passes"


def test_a_hash_tells_all_that_a_kernel_is_built_from() -> None:
    def identified(builder: Any = BUILDER, workload: Any = RELU, **changes: Any) -> str:
        fields: dict[str, Any] = {
            "implementation": "generic",
            "settings": (),
            "forms": (PLAIN,) * 2,
        }
        target = changes.pop("target", PLACEMENT.target)
        resources = changes.pop("resources", PLACEMENT.resources)
        return builder.identify(workload, Candidate(**fields | changes), target, resources)

    class Next(SimulatedBuilder):
        name = BUILDER.name
        generation = 2

    class Other(SimulatedBuilder):
        name = "other"

    hashes = {
        identified(),
        identified(Next()),
        identified(Other()),
        identified(workload=single("relu", (1, 16, 8, 9))),
        identified(settings=(("vector", 8),)),
        identified(forms=(blocked(8), PLAIN)),
        identified(target=altered(PLACEMENT, cores=5).target),
        identified(resources=threads_alone(3)),
    }
    assert len(hashes) == 8
    assert identified() in hashes, "asked again"
    with pytest.raises(TilewrightError):
        identified(implementation="of nobody")


@pytest.mark.parametrize("view", ["tir", "asm"])
def test_there_is_no_code_to_show(view: str) -> None:
    candidate = Candidate(implementation="generic", settings=(), forms=(PLAIN,) * 2)
    with pytest.raises(TargetError, match=f"'null' builds cannot be shown as {view}") as told:
        BUILDER.render(RELU, candidate, PLACEMENT.target, PLACEMENT.resources, view)
    assert told.value.hint is not None and "--graph" in told.value.hint

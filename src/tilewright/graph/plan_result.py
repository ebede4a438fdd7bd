"""What is known of a plan: it lies beside the plan, call by call, and never in it.

A search learns how long kernels take alone and that they compute what numpy does; a race learns
what the network takes and gives, and how long each call takes in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from tilewright.core.grouping import grouped
from tilewright.core.records import KernelCheck, Measurement, NetworkCheck
from tilewright.core.solutions import Solution
from tilewright.core.timings import Timing
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import TaskKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What is known of a call; None for what was not measured.

    `alone` is its kernel by itself, `usual` that of our default settings, `rival` the fastest of
    another implementation, `check` its result against numpy's, `in_place_s` its median seconds in
    the running network.
    """

    alone: Measurement | None = None
    usual: Measurement | None = None
    rival: Measurement | None = None
    check: KernelCheck | None = None
    in_place_s: float | None = None

    @property
    def call_s(self) -> float | None:
        """Seconds alone, else in place."""
        return self.alone.latency_s if self.alone is not None else self.in_place_s


NOTHING = CallResult()
"""Of a call that nothing is known of."""


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """What is known of `plan`, which is called `name` among the plans of its network.

    `calls` are by name of call. `solution` is what a solver said where it came from one, and
    `measured` whether all costs in it were; `check` and `timing` are of the compiled network.
    """

    name: str
    plan: NetworkPlan
    calls: Mapping[str, CallResult] = field(default_factory=dict[str, CallResult])
    solution: Solution | None = None
    measured: bool = False
    check: NetworkCheck | None = None
    timing: Timing | None = None

    def call(self, name: str) -> CallResult:
        """What is known of a call."""
        return self.calls.get(name, NOTHING)

    def task(self, key: TaskKey) -> CallResult:
        """What is known of a task: of its first call, in place the mean of all its calls."""
        names = self._calls_of[key]
        in_place_s = [s for name in names if (s := self.call(name).in_place_s) is not None]
        return replace(self.call(names[0]), in_place_s=fmean(in_place_s) if in_place_s else None)

    @property
    def predicted_s(self) -> float | None:
        """The sum of all kernels' times alone; None where one was not measured."""
        alone = [self.call(call.name).alone for call in self.plan.calls]
        times = [measurement.latency_s for measurement in alone if measurement is not None]
        return sum(times) if len(times) == len(alone) else None

    @cached_property
    def _calls_of(self) -> dict[TaskKey, list[str]]:
        return grouped([(call.task, call.name) for call in self.plan.calls])

    def with_tasks(self, known: Mapping[TaskKey, CallResult]) -> PlanResult:
        """The same with what is known of tasks told of each of their calls."""
        told = {call.name: known[call.task] for call in self.plan.calls if call.task in known}
        return replace(self, calls={**self.calls, **told})

    def with_places(self, in_place_s: Mapping[str, float]) -> PlanResult:
        """The same with the seconds of calls in the running network, by name."""
        told = {
            name: replace(self.call(name), in_place_s=seconds)
            for name, seconds in in_place_s.items()
        }
        return replace(self, calls={**self.calls, **told})

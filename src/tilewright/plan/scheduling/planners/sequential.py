"""One call after the other in the order of the problem: what there is without a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tilewright.plan.scheduling.bounds import usable_modes
from tilewright.plan.scheduling.choosing import best
from tilewright.plan.scheduling.decoding import decode
from tilewright.plan.scheduling.parts import Mode
from tilewright.plan.scheduling.problem import SchedulingProblem
from tilewright.plan.scheduling.schedule import Schedule
from tilewright.plan.scheduling.scheduler import NothingFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential:
    """Never two calls at a time: all on one device where it can compute them, or each where it is
    fastest; each in the mode that is fastest there, or that takes least energy or fewest bytes.
    The best of these by the objective."""

    name: str = "sequential"

    def schedule(self, problem: SchedulingProblem, limit_s: float) -> Schedule:
        """The best of them; `limit_s` is not needed."""
        del limit_s
        order = range(len(problem.calls))
        attempts = (
            partial(decode, problem, order, modes, planner=self.name, one_by_one=True)
            for modes in _choices(problem)
        )
        return best(problem, self.name, attempts)


_BY: tuple[Callable[[Mode], tuple[float, float]], ...] = (
    lambda mode: (mode.latency_s, 0.0),
    lambda mode: (mode.energy_j or 0.0, mode.latency_s),
    lambda mode: (mode.weight_bytes + mode.workspace_bytes, mode.latency_s),
    lambda mode: (-mode.cores, mode.latency_s),
)


def _choices(problem: SchedulingProblem) -> list[Sequence[int]]:
    """The modes of all calls, in each way once."""
    usable = usable_modes(problem)
    found: dict[tuple[int, ...], None] = {}
    for device in (*(device.name for device in problem.devices), None):
        for by in _BY:
            chosen: list[int] = []
            for call, places in zip(problem.calls, usable, strict=True):
                there = [place for place in places if call.modes[place].device == device] or places
                chosen.append(min(there, key=lambda place, own=call.modes: by(own[place])))
            found[tuple(chosen)] = None
    return list(found)


def on_one_device(problem: SchedulingProblem) -> Iterator[tuple[str, Schedule]]:
    """Each device that has a mode for all calls, with the schedule of all of them there, one after
    the other on as many cores as they can have; a network after the other as the problem has them.
    Calls that take no time, such as the inputs of a network, may be elsewhere. What finds no place
    on a device, for its memory say, is left out."""
    usable, order = usable_modes(problem), range(len(problem.calls))
    for device in problem.devices:
        chosen: list[int] = []
        for call, places in zip(problem.calls, usable, strict=True):
            there = [place for place in places if call.modes[place].device == device.name]
            if not there and not any(call.modes[place].latency_s for place in places):
                there = places
            own = call.modes
            chosen += sorted(there, key=lambda n, own=own: (-own[n].cores, own[n].latency_s))[:1]
        if len(chosen) == len(problem.calls):
            with suppress(NothingFound):
                named = Sequential().name
                yield device.name, decode(problem, order, chosen, planner=named, one_by_one=True)

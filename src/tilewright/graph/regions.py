"""The parts of a plan with several lanes that run side by side, for those who carry it out.

    main     conv1              concat   pool
    core 0          a1   a2
    core 1          b1

    steps    conv1, Region([a1, a2], [b1]), concat, pool

A *region* is what other lanes than the main one do between two calls of that. Nothing in it waits
for another lane of it, so its lanes begin together, and what comes behind begins when all of them
have ended. That is more order than the plan asks for, never less.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.plan import MAIN, NetworkPlan, PlannedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Calls side by side: those of each lane one after the other."""

    lanes: tuple[tuple[PlannedCall, ...], ...]

    @property
    def calls(self) -> tuple[PlannedCall, ...]:
        """All of them, lane after lane."""
        return tuple(call for lane in self.lanes for call in lane)


def steps_of(plan: NetworkPlan) -> tuple[PlannedCall | Region, ...]:
    """The plan's calls one after the other, and regions where several lanes work."""
    found: list[PlannedCall | Region] = []
    open_lanes: dict[str, list[PlannedCall]] = {}
    lane_of = {call.name: call.lane for call in plan.calls}

    def close() -> None:
        if open_lanes:
            found.append(Region(lanes=tuple(map(tuple, open_lanes.values()))))
            open_lanes.clear()

    for call in plan.calls:
        inside = {each.name for lane in open_lanes.values() for each in lane}
        across = any(name in inside and lane_of[name] != call.lane for name in call.after)
        if call.lane == MAIN or across:
            close()
        if call.lane == MAIN:
            found.append(call)
        else:
            open_lanes.setdefault(call.lane, []).append(call)
    close()
    return tuple(found)

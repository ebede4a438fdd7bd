"""What compiled parts of networks are called, where they lie and what they read: all that those who
run them need to know."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tilewright.core.records import Placement
from tilewright.graph.parts import Place
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.scheduling.plan_file import Plan
from tilewright.plan.scheduling.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class CompiledPart:
    """A part of a network: what it reads and writes by the names of the network's tensors, the
    folder it was compiled to with the names of its constants in order, the numbers of the parts
    whose results it reads, the seconds that were predicted of its `calls`, and when the first of
    them begins in the schedule."""

    name: str
    network: str
    place: Place
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    folder: Path
    constants: tuple[str, ...]
    after: tuple[int, ...]
    expected_s: float
    begin_s: float = 0.0
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to compute networks: the parts of each by its name, in an order in which they can
    run."""

    parts: Mapping[str, tuple[CompiledPart, ...]]

    @property
    def places(self) -> tuple[Place, ...]:
        """Where something runs."""
        return tuple(dict.fromkeys(part.place for each in self.parts.values() for part in each))

    def is_alone_on(self, device: str) -> bool:
        """Whether each network is one part, and all are at one place of a device."""
        whole = all(len(each) == 1 for each in self.parts.values())
        return whole and len(self.places) == 1 and self.places[0][0] == device


class Parts(Protocol):
    """The networks of a plan, and the ways to compute them that are compiled or can be: see
    `plan_parts.PlanParts`."""

    @property
    def plan(self) -> Plan:
        """What is planned."""
        ...

    @property
    def placements(self) -> Mapping[str, Placement]:
        """The devices that are here or answer, by the plan's names."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the networks are called."""
        ...

    def network(self, name: str) -> PreparedNetwork:
        """A network of the plan."""
        ...

    def way(self, schedule: Schedule) -> Way:
        """As a schedule of the plan's problem says."""
        ...

    def alone(self, device: str) -> Way:
        """All calls one after the other on all cores of a device, apart where a plan merges
        some."""
        ...

    def fastest_alone(self, without: Collection[str] = ()) -> str | None:
        """The device that is predicted to compute all fastest; None where none can."""
        ...

    def left(self, lost: Collection[str], slower: Mapping[str, float]) -> Way:
        """Planned again without the devices that are lost, where others take so many times as long.
        Raises TargetError where what is left computes not all calls."""
        ...

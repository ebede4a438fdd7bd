"""A plan of toy networks at two places that are processes of this machine without TVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from helpers.fakes.prepared_network import prepared
from helpers.fakes.toy_serving import QUICK
from helpers.fakes.toy_serving_worker import SECONDS
from helpers.networks.graph_builder import Builder
from tilewright.core.errors import TargetError
from tilewright.core.events import Event, Note
from tilewright.core.schedules import RunMode
from tilewright.core.scratch import scratch_folder
from tilewright.deploy.compiled_parts import CompiledPart, Way
from tilewright.deploy.plan_parts import PlanParts
from tilewright.graph.parts import Place
from tilewright.hardware.device import local_placement
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.scheduling.plan_file import PlannedNetwork
from tilewright.serving.plan_crew import PlanCrew
from tilewright.serving.planned_networks import PlannedNetworks
from tilewright.serving.server import Server, ServerOptions

LEFT: Place = ("left", (0,))
RIGHT: Place = ("right", (1 % len(local_placement(None).binding.cpus),))


def chain() -> PreparedNetwork:
    """x → t → y, of four numbers each; what a toy worker makes of x it makes of t, too."""
    b = Builder()
    t = b.conv(b.input(1, 4, 1, 1), 4, 1)
    return prepared(b.graph(b.conv(b.add("reshape", b.add("relu", t), shape=(1, 4, 1, 1)), 4, 1)))


class ToyParts:
    """In the place of `PlanParts`: each network is a part at `LEFT` and a part at `RIGHT`, which
    reads what the first one wrote; alone, all is at one of them. Each is predicted to take
    `expected_s`. A folder holds what a device
    does: how long its parts take, and why it does not start."""

    def __init__(self, folder: Path, networks: Sequence[str], alone: str | None) -> None:
        self.folder, self.names, self._alone = folder, tuple(networks), alone
        self._network = chain()
        self.placements = dict.fromkeys(("left", "right"), local_placement(1))
        self.plan = cast(
            Any,
            type(
                "plan",
                (),
                {
                    "networks": [PlannedNetwork(name=n, model=n.split()[0]) for n in networks],
                    "schedule": None,
                },
            ),
        )
        self.expected_s = 0.001
        self.asked: list[tuple[set[str], dict[str, float]]] = []
        for device in self.placements:
            self.takes(device, 0.001)

    def takes(self, device: str, seconds: float) -> None:
        """From now on parts on a device take so long."""
        place = self.folder / device
        place.mkdir(exist_ok=True)
        (place / "next").write_text(str(seconds))
        (place / "next").replace(place / SECONDS)

    def network(self, _name: str) -> PreparedNetwork:
        return self._network

    def way(self, _schedule: object) -> Way:
        return self._at(LEFT, RIGHT)

    def alone(self, device: str) -> Way:
        place = LEFT if device == "left" else RIGHT
        return self._at(place, place)

    def fastest_alone(self) -> str | None:
        return self._alone

    def left(self, lost: Collection[str], slower: Mapping[str, float]) -> Way:
        self.asked.append((set(lost), dict(slower)))
        here = [each for each in self.placements if each not in (*lost, *slower)]
        if not here:
            raise TargetError("no device that is left computes the call 'conv'")
        return self.alone(here[0])

    def _at(self, first: Place, second: Place) -> Way:
        x, t, y = (
            self._network.graph.inputs[0],
            self._network.fused.calls[0].output,
            self._network.graph.outputs[0],
        )
        return Way(
            parts={
                name: (
                    self._part(name, "first", first, x, t, ()),
                    self._part(name, "second", second, t, y, (0,)),
                )
                for name in self.names
            }
        )

    def _part(
        self, network: str, name: str, place: Place, read: str, written: str, after: tuple[int, ...]
    ) -> CompiledPart:
        return CompiledPart(
            name=f"{network}: {name}",
            network=network,
            place=place,
            inputs=(read,),
            outputs=(written,),
            folder=self.folder / place[0],
            constants=(),
            after=after,
            expected_s=self.expected_s,
        )


class ToyPlanServer(Server):
    """A server of toy networks at two places; `notes` is what was told."""

    def __init__(
        self,
        folder: Path,
        networks: Sequence[str] = ("a",),
        mode: RunMode = "parallel",
        alone: str | None = "left",
        queue: int = 64,
    ) -> None:
        self.notes: list[str] = []
        self.parts = ToyParts(folder, networks, alone)
        parts = cast(PlanParts, self.parts)
        known = PlannedNetworks(parts)
        self.crew = PlanCrew(parts, known, mode, scratch_folder())
        options = ServerOptions(
            queue=queue,
            supervision=replace(QUICK, starts=2),
            worker="helpers.fakes.toy_serving_worker",
            events=self._note,
        )
        super().__init__(known.groups, self.crew, options)

    def _note(self, event: Event) -> None:
        assert isinstance(event, Note)
        self.notes.append(event.message)

    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [each.pid for each in self.statistics().instances if each.pid is not None]


def given(first: float) -> dict[str, np.ndarray]:
    """An input that begins with this number."""
    return {"x0": np.array([first, 0.25, 0.5, -0.5], np.float32).reshape(1, 4, 1, 1)}


def wanted(first: float) -> np.ndarray:
    """What two toys after each other make of it."""
    return 4 * given(first)["x0"] + 3


def until(found: Callable[[], bool]) -> None:
    """Wait for something that comes true, at most for a minute."""
    end_s = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def check(server: ToyPlanServer, name: str = "a", count: int = 20) -> None:
    """Requests are answered, each with its own result."""
    answers = [server.submit(name, given(n), timeout_s=None) for n in range(count)]
    for number, answer in enumerate(answers):
        np.testing.assert_array_equal(answer.result(10), wanted(number))

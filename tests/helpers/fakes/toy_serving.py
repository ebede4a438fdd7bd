"""Servers of toy networks, which start in a third of a second."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helpers.fakes.toy_serving_worker import SECONDS
from tilewright.core.events import Event, Note
from tilewright.deploy.manifest import Port
from tilewright.serving.batches import Batch, Batches
from tilewright.serving.instance import Supervision
from tilewright.serving.served import ServedNetwork
from tilewright.serving.server import Server, ServerOptions

X = Port(name="x", shape=(1, 4), dtype="float32")
Y = Port(name="y", shape=(1, 4), dtype="float32")
COLUMN = Port(name="column", shape=(4, 1), dtype="float32")
Z = Port(name="z", shape=(-1,), dtype="int64")
CORES = len(os.sched_getaffinity(0))
QUICK = Supervision(patience=20.0, least_patience_s=0.3, pause_s=0.01, starts=2, trial_s=0.5)


def toy_network(
    folder: Path,
    name: str,
    *,
    seconds: float = 0.0,
    sized: bool = True,
    sizes: Sequence[int] = (),
    two: bool = False,
) -> Any:
    """y = 2 x + 1 after so many seconds, in batches of these `sizes`, with `two` outputs also -x as
    a column then; unless `sized`, also z of a size that x decides."""
    place = folder / name
    place.mkdir()
    (place / SECONDS).write_text(str(seconds))
    outputs = (Y, COLUMN) if two else (Y,) if sized else (Y, Z)
    larger = tuple(Batch(size=size, folder=place, constants=()) for size in sizes)
    batches = Batches(larger=larger, inputs=(0,), outputs=(0, 1)[: len(outputs)], max_error=1e-3)
    return ServedNetwork(
        name=name,
        inputs=(X,),
        outputs=outputs,
        folder=place,
        batches=batches if sizes else Batches(),
    )


class ToyServer(Server):
    """A server of toy networks by name, each with the seconds that it takes; `notes` is what was
    told."""

    def __init__(
        self,
        folder: Path,
        networks: Mapping[str, float],
        instances: int = min(2, CORES),
        queue: int = 64,
        supervision: Supervision = QUICK,
        sizes: Sequence[int] = (),
    ) -> None:
        self.notes: list[str] = []
        self.folder = folder
        options = ServerOptions(
            queue=queue,
            supervision=supervision,
            worker="helpers.fakes.toy_serving_worker",
            events=self._note,
        )
        toys = [
            toy_network(folder, name, seconds=each, sizes=sizes) for name, each in networks.items()
        ]
        super().__init__(toys, (1,) * instances, options)

    def _note(self, event: Event) -> None:
        assert isinstance(event, Note)
        self.notes.append(event.message)

    def takes(self, name: str, seconds: float) -> None:
        """From now on a network takes so long."""
        temporary = self.folder / name / "next"
        temporary.write_text(str(seconds))
        temporary.replace(self.folder / name / SECONDS)

    def pids(self) -> list[int]:
        """Of the instances that run."""
        found = [each.pid for each in self.statistics().instances]
        return [pid for pid in found if pid is not None]


def x_of(first: float = 0.0, second: float = 0.0) -> np.ndarray:
    """An input that begins with these."""
    return np.array([[first, second, 0.5, -0.5]], dtype=np.float32)


def y_of(x: np.ndarray) -> np.ndarray:
    """What a toy network makes of it."""
    return 2 * x + 1

"""The child process that computes requests; `serving.instance` asks it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewright.compiler.execute import LoadedNetwork, set_threads
from tilewright.core import child
from tilewright.graph.network import Array
from tilewright.serving.slots import SharedSlots, SlotPlan

_slots: list[SharedSlots] = []
_networks: dict[str, tuple[LoadedNetwork, SlotPlan]] = {}


def prepare(descriptor: int, count: int, slot_bytes: int, cpus: Sequence[int]) -> None:
    """Take the shared slots, and the cores to compute on, with a thread on each."""
    _slots.append(SharedSlots(descriptor, count, slot_bytes))
    set_threads(len(cpus), cpus)


def load(name: str, folder: Path, order: Sequence[str], plan: SlotPlan) -> None:
    """Load a compiled network as `name`; `order` are the names of its constants."""
    _networks[name] = LoadedNetwork.open(folder, order), plan


def run(name: str, slot: int) -> dict[int, Array]:
    """Run once on the inputs in a slot, and leave the outputs there; those that have no place there
    are answered, by their number."""
    network, plan = _networks[name]
    (slots,) = _slots
    results = network([slots.view(slot, place) for place in plan.inputs])
    others: dict[int, Array] = {}
    for index, (place, array) in enumerate(zip(plan.outputs, results, strict=True)):
        if place is None:
            others[index] = array
        else:
            np.copyto(slots.view(slot, place), array, casting="no")
    return others


if __name__ == "__main__":
    child.serve({"prepare": prepare, "load": load, "run": run})

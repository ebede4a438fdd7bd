"""The child process that computes requests; `serving.instance` asks it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.compiler.execute import LoadedNetwork, WeightsPool, set_threads
from tilewright.core import child
from tilewright.graph.network import Array
from tilewright.serving.batches import NO_BATCHES, Batches
from tilewright.serving.slots import SharedSlots, SlotPlan

_slots: list[SharedSlots] = []
_networks: dict[str, tuple[LoadedNetwork, SlotPlan]] = {}
_batched: dict[tuple[str, int], LoadedNetwork] = {}
_batches: dict[str, Batches] = {}


def prepare(descriptor: int, count: int, slot_bytes: int, cpus: Sequence[int]) -> None:
    """Take the shared slots, and the cores to compute on, with a thread on each."""
    _slots.append(SharedSlots(descriptor, count, slot_bytes))
    set_threads(len(cpus), cpus)


def load(
    name: str,
    folder: Path,
    order: Sequence[str],
    plan: SlotPlan,
    batches: Batches = NO_BATCHES,
) -> None:
    """Load a compiled network as `name`; `order` are the names of its constants."""
    pool = WeightsPool() if batches.larger else None
    _networks[name] = LoadedNetwork.open(folder, order, pool), plan
    _batches[name] = batches
    for batch in batches.larger:
        _batched[name, batch.size] = LoadedNetwork.open(batch.folder, batch.constants, pool)


def run(name: str, slot: int) -> dict[int, Array]:
    """Run once on the inputs in a slot, and leave the outputs there; those that have no place there
    are answered, by their number."""
    network, plan = _networks[name]
    (slots,) = _slots
    return slots.keep(slot, plan, network([slots.view(slot, place) for place in plan.inputs]))


def run_batch(name: str, size: int, slots: Sequence[int]) -> dict[int, Array]:
    """Run once on the inputs in several slots, in a batch that the last one fills up, and leave
    the outputs of each there."""
    (_, plan), batches, (memory,) = _networks[name], _batches[name], _slots
    filled = [*slots, *[slots[-1]] * (size - len(slots))]
    joined = zip(plan.inputs, batches.inputs, strict=True)
    results = _batched[name, size]([memory.joined(filled, *each) for each in joined])
    for place, axis, array in zip(plan.outputs, batches.outputs, results, strict=True):
        assert place is not None, "requests of unknown sizes are not put together"
        memory.spread(slots, place, axis, array)
    return {}


if __name__ == "__main__":
    child.serve({"prepare": prepare, "load": load, "run": run, "run_batch": run_batch})

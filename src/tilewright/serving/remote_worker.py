"""The child process that holds the session of a device elsewhere and has networks, or parts of
them, computed there, from slots that it shares with the server; `serving.posts` asks it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.compiler.remote import RemoteNetworks, RemoteSession
from tilewright.core import child
from tilewright.graph.network import Array
from tilewright.measure.remote_worker import connect, disconnect, in_session
from tilewright.serving.slots import SharedSlots, SlotPlan

_slots: list[SharedSlots] = []
_plans: dict[str, SlotPlan] = {}


def prepare(descriptor: int, count: int, slot_bytes: int) -> None:
    """Take the shared slots."""
    _slots[:] = [SharedSlots(descriptor, count, slot_bytes)]


def load(
    networks: RemoteNetworks, name: str, folder: Path, order: Sequence[str], plan: SlotPlan
) -> None:
    """Load a compiled network on the device as `name`."""
    networks.load(name, folder, order)
    _plans[name] = plan


def run(networks: RemoteNetworks, name: str, slot: int) -> dict[int, Array]:
    """Run once on the inputs in a slot, and leave the outputs there; those that have no place there
    are answered, by their number."""
    plan, (slots,) = _plans[name], _slots
    results = networks.run(name, [slots.view(slot, place) for place in plan.inputs])
    return slots.keep(slot, plan, results)


if __name__ == "__main__":
    child.serve(
        {
            "prepare": prepare,
            "connect": connect,
            "disconnect": disconnect,
            "use_threads": in_session(RemoteSession.use_threads),
            "load": in_session(load, 1),
            "run": in_session(run, 1),
        }
    )

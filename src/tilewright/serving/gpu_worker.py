"""The child process that has a GPU and computes parts of networks there, from slots that it shares
with the server; `serving.posts` asks it.

    slot ─▶ input ─▶ kernels, replayed as one graph ─▶ output ─▶ slot
            input ◀─ kept by another part               └─▶ kept for another part
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from tilewright.compiler.cuda.driver import Driver, DriverError, Memory, OutOfDeviceMemory
from tilewright.compiler.cuda.execute import LoadedCudaNetwork
from tilewright.core import child
from tilewright.core.errors import InternalError, ProcessSpoilt
from tilewright.core.targets import Target
from tilewright.serving.slots import SharedSlots, SlotPlan
from tilewright.serving.staying import Copied, Stays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    network: LoadedCudaNetwork
    plan: SlotPlan
    stays: Stays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    order: int
    memory: Memory


@dataclass(slots=True)
class PartsOnGpu:
    """What this process has: the GPU's driver, the shared slots, parts by their keys, and tensors
    that stay on the GPU, by slot and name, each with the order of its request; memory that nothing
    lies in any more, by its size. `open_driver` opens the driver of a target."""

    open_driver: Callable[[Target], Driver]
    _driver: Driver | None = None
    _slots: SharedSlots | None = None
    _parts: dict[str, _Part] = field(default_factory=dict[str, _Part])
    _kept: dict[tuple[int, str], _Kept] = field(default_factory=dict[tuple[int, str], _Kept])
    _spare: dict[int, list[Memory]] = field(default_factory=dict[int, list[Memory]])

    def prepare(self, descriptor: int, count: int, slot_bytes: int, target: Target) -> None:
        """Take the shared slots and the GPU. Raises TargetError where it cannot be had."""
        self._slots = SharedSlots(descriptor, count, slot_bytes)
        self._driver = self.open_driver(target)

    def load(
        self, name: str, folder: Path, order: Sequence[str], plan: SlotPlan, stays: Stays
    ) -> None:
        """Load a compiled part as `name`, and try it out."""
        driver, _ = self._prepared()
        network = LoadedCudaNetwork.open(folder, order, driver)
        network.try_out()
        self._parts[name] = _Part(network=network, plan=plan, stays=stays)

    def run(self, name: str, slot: int, orders: Sequence[int]) -> tuple[Copied, ...]:
        """Run once on what is in a slot or stayed on the GPU of this request, and leave the outputs
        where they are wanted; what was copied between the slot and the GPU, and when. `orders` are
        that of the request and those of all others on their way, of which alone anything stays.
        Raises ProcessSpoilt for whatever is the GPU's fault: another process may get it to work
        again."""
        try:
            for place in [at for at, each in self._kept.items() if each.order not in orders]:
                self._spared(self._kept.pop(place).memory)
            return self._run(self._parts[name], slot, orders[0])
        except (DriverError, OutOfDeviceMemory) as error:
            raise ProcessSpoilt(f"the GPU failed: {error}") from error

    def _run(self, part: _Part, slot: int, order: int) -> tuple[Copied, ...]:
        (_, slots), network, stays = self._prepared(), part.network, part.stays
        copies = list[Copied]()
        for number, tensor in enumerate(stays.inputs):
            kept = self._kept.get((slot, tensor))
            if kept is not None and kept.order == order:
                network.give(number, kept.memory)
                continue
            if tensor in stays.only_here:
                raise InternalError(f"{tensor!r} does not lie on the GPU, where it should")
            began_s = monotonic()
            network.give(number, slots.view(slot, part.plan.inputs[number]))
            copies.append(_copied(tensor, began_s, to_device=True))
            if tensor in stays.kept:
                self._keep(slot, tensor, order, network.input(number))
        network.compute()
        for number, tensor in enumerate(stays.outputs):
            place = part.plan.outputs[number]
            if tensor in stays.kept:
                self._keep(slot, tensor, order, network.result(number))
            if tensor in stays.sent and place is not None:
                began_s = monotonic()
                network.fetch(number, slots.view(slot, place))
                copies.append(_copied(tensor, began_s, to_device=False))
        network.check()
        return tuple(copies)

    def _prepared(self) -> tuple[Driver, SharedSlots]:
        if self._driver is None or self._slots is None:
            raise InternalError("nobody said which GPU is meant")
        return self._driver, self._slots

    def _keep(self, slot: int, tensor: str, order: int, memory: Memory) -> None:
        """Keep a tensor of a request at a place of its own: the part that has it may run for
        another request before this one is read."""
        (driver, _), known = self._prepared(), self._kept.pop((slot, tensor), None)
        if known is not None:  # from before it was computed again
            self._spared(known.memory)
        spare = self._spare.get(memory.bytes)
        goal = spare.pop() if spare else driver.allocate(memory.bytes)
        driver.copy(goal, memory)
        self._kept[slot, tensor] = _Kept(order=order, memory=goal)

    def _spared(self, memory: Memory) -> None:
        self._spare.setdefault(memory.bytes, []).append(memory)

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """What answers each request."""
        return {"prepare": self.prepare, "load": self.load, "run": self.run}


def _copied(tensor: str, began_s: float, *, to_device: bool) -> Copied:
    return Copied(tensor=tensor, to_device=to_device, begin_s=began_s, end_s=monotonic())


if __name__ == "__main__":
    from tilewright.compiler.cuda.nvidia import open_driver

    child.serve(PartsOnGpu(open_driver).handlers)

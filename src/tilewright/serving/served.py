"""The networks of a server, as far as it must know them: ports, files, places in a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.errors import UsageError
from tilewright.core.records import Placement
from tilewright.deploy.manifest import Port
from tilewright.graph.network import Array
from tilewright.serving.batches import NO_BATCHES, Batches, ToLoad
from tilewright.serving.slots import SlotPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedNetwork:
    """A network under the name that requests call it by, what a worker loads it from (the folder,
    the names of its constants in order, and what computes several requests at a time), and where
    the tensors of a request lie in a slot, which may be larger than these."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    folder: Path = Path()
    constants: tuple[str, ...] = ()
    batches: Batches = NO_BATCHES
    slot_bytes: int = 0
    plan: SlotPlan = field(init=False)

    def __post_init__(self) -> None:
        types = [[port.type for port in ports] for ports in (self.inputs, self.outputs)]
        plan = SlotPlan.of(*types)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "slot_bytes", max(self.slot_bytes, plan.size_bytes))

    @property
    def to_load(self) -> ToLoad:
        """What a process loads."""
        return ToLoad(
            key=self.name,
            folder=self.folder,
            constants=self.constants,
            plan=self.plan,
            batches=self.batches,
        )

    def drawn_inputs(self, seed: int = 0) -> list[Array]:
        """Inputs that it takes, drawn: N(0, 1), indices in their range, whole numbers without one
        and booleans 0 or 1."""
        rng = np.random.default_rng(seed)
        return [_drawn(port, rng) for port in self.inputs]

    def refuse_several(self, inputs: Mapping[str, Any]) -> None:
        """Raise UsageError for inputs of another batch than requests have."""
        for port, axis in zip(self.inputs, self.batches.inputs, strict=False):
            given = getattr(inputs.get(port.name), "shape", port.shape)
            if len(given) == len(port.shape) and given[axis] != port.shape[axis]:
                raise UsageError(
                    f"input {port.name!r} has {given[axis]} rows, a request {port.shape[axis]}: "
                    "the server puts requests together itself",
                    hint="Send requests one by one, or serve the folder of another batch, too.",
                )


def _drawn(port: Port, rng: np.random.Generator) -> Array:
    kind = element_type(port.dtype)
    if kind.is_float:
        return rng.standard_normal(port.shape, dtype=np.float32).astype(kind.numpy)
    lowest = [each.lowest for each in port.ranges] or [0]
    highest = [each.highest for each in port.ranges] or [1]
    return rng.integers(lowest, highest, port.shape, endpoint=True).astype(kind.numpy)


def largest_batch(networks: Iterable[ServedNetwork]) -> int:
    """How many requests for one of these networks run at a time at most."""
    return max(network.batches.sizes[-1] for network in networks)


def unbatched(networks: Sequence[ServedNetwork]) -> tuple[ServedNetwork, ...]:
    """The same networks, whose requests run one by one."""
    return tuple(replace(network, batches=NO_BATCHES) for network in networks)


def limited(network: ServedNetwork, most: int | None) -> ServedNetwork:
    """The same network, of which at most so many requests run at a time; None for all sizes."""
    if most is None:
        return network
    larger = tuple(batch for batch in network.batches.larger if batch.size <= most)
    return replace(network, batches=replace(network.batches, larger=larger))


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A device behind a tracker by the name that people gave it, and the networks that it loads."""

    name: str
    placement: Placement
    networks: Mapping[str, ServedNetwork]

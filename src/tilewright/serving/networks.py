"""The networks of a server, as far as it must know them: ports, files, places in a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core import arguments
from tilewright.core.element_types import element_type
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, discard
from tilewright.deploy.artifact import refuse_here
from tilewright.deploy.manifest import Port, is_shape_set
from tilewright.deploy.opening import OpenedArtifact, open_artifact, open_member
from tilewright.deploy.shape_set import read_shape_set
from tilewright.graph.network import Array
from tilewright.kernels.cuda.base import CUDA
from tilewright.serving.batch_folders import (
    batch_members,
    fitting_sizes,
    opened_batches,
    require_known,
    told_or_raised,
)
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


def open_served(
    artifacts: Mapping[str, Any],
    batches: object = None,
    *,
    verify: bool = True,
    events: EventSink = discard,
) -> tuple[ServedNetwork, ...]:
    """The networks of artifact folders by name; of one that has several batch sizes a request is
    for the smallest, and several run together in the larger ones, of which `batches` may name some.
    Where requests cannot be put together they run one by one, and `events` are told.

    Raises UsageError for none, for `batches` that none has or that cannot be, for artifacts of
    other shapes and for decoders; ModelError for what is no artifact; TargetError for one that does
    not run on this machine's CPU.
    """
    wished = None if batches is None else arguments.counts_of(batches, "batches", 1)
    places = {name: _only(name, given) for name, given in some_artifacts(artifacts).items()}
    found: list[ServedNetwork] = []
    known = set[int]()
    for name, place in places.items():
        if not is_shape_set(place):
            found.append(_served(name, open_artifact(place, verify=verify)))
            continue
        shapes = read_shape_set(place, verify=verify)
        smallest = batch_members(place, shapes)[0]
        network = _served(name, open_member(place, smallest, verify=verify))
        try:
            together = opened_batches(place, shapes, wished, verify=verify)
        except UsageError as error:
            together = told_or_raised(error, events, asked=wished is not None)
        found.append(replace(network, batches=together))
        known.update(fitting_sizes(shapes))
    require_known(wished or (), known)
    return tuple(found)


def some_artifacts(artifacts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Artifacts by the names of their networks. Raises UsageError for none."""
    found = arguments.named_of(artifacts, "artifacts")
    if not found:
        raise UsageError("No artifact is given.", hint="A name and a folder that `optimize` wrote.")
    return found


def _only(name: str, given: object) -> Path:
    """The one folder of a network. Raises UsageError for several."""
    first, *others = arguments.paths_of(given, f"the folder of {name!r}")
    if others:
        raise UsageError(
            f"{name!r} has {1 + len(others)} artifacts, and one device computes",
            hint="Give it one, or name the devices that they were made for (devices in Python, "
            "--devices).",
        )
    return first


def largest_batch(networks: Iterable[ServedNetwork]) -> int:
    """How many requests for one of these networks run at a time at most."""
    return max(network.batches.sizes[-1] for network in networks)


def unbatched(networks: Sequence[ServedNetwork]) -> tuple[ServedNetwork, ...]:
    """The same networks, whose requests run one by one."""
    return tuple(replace(network, batches=NO_BATCHES) for network in networks)


def _served(name: str, opened: OpenedArtifact) -> ServedNetwork:
    machine = opened.manifest.machine
    if machine.kind == CUDA:
        raise UsageError(
            f"{str(opened.folder)!r} was made for {machine.model}; only networks for the CPU are "
            "served"
        )
    refuse_here(opened)
    return of_artifact(name, opened)


def of_artifact(name: str, opened: OpenedArtifact) -> ServedNetwork:
    """The network of an artifact, wherever it runs."""
    return ServedNetwork(
        name=name,
        inputs=opened.manifest.inputs,
        outputs=opened.manifest.outputs,
        folder=opened.folder.absolute(),
        constants=opened.manifest.constants,
    )


def named_folders(texts: Sequence[str], *, several: bool = False) -> dict[str, list[str]]:
    """Artifacts as people name them on the command line: `FOLDER`, called like its last part, or
    `NAME=FOLDER`. Raises UsageError for two of one name, unless it may have `several`."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, given, folder = text.partition("=")
        if not given or Path(text).exists():
            name, folder = Path(text).resolve().name, text
        folders = found.setdefault(name, [])
        folders.append(folder)
        if len(folders) > 1 and not several:
            raise UsageError(
                f"Two artifacts are called {name!r}: {' and '.join(folders)}",
                hint=f"Give one of them another name: other={folder}; a name has several for "
                "different --devices only.",
            )
    return found

"""The networks of a server, as far as it must know them: ports, files, places in a slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.core import arguments
from tilewright.core.element_types import element_type
from tilewright.core.errors import UsageError
from tilewright.deploy.artifact import refuse_here
from tilewright.deploy.manifest import Port, is_shape_set
from tilewright.deploy.opening import open_artifact
from tilewright.deploy.shape_set import read_shape_set
from tilewright.graph.network import Array
from tilewright.kernels.cuda.base import CUDA
from tilewright.serving.slots import SlotPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedNetwork:
    """A network under the name that requests call it by, what a worker loads it from (the folder,
    the names of its constants in order), and where its tensors lie in a slot, which may be larger
    than these."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    folder: Path = Path()
    constants: tuple[str, ...] = ()
    slot_bytes: int = 0
    plan: SlotPlan = field(init=False)

    def __post_init__(self) -> None:
        types = [[port.type for port in ports] for ports in (self.inputs, self.outputs)]
        plan = SlotPlan.of(*types)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "slot_bytes", max(self.slot_bytes, plan.size_bytes))

    def drawn_inputs(self, seed: int = 0) -> list[Array]:
        """Inputs that it takes, drawn: N(0, 1), indices in their range, whole numbers without one
        and booleans 0 or 1."""
        rng = np.random.default_rng(seed)
        return [_drawn(port, rng) for port in self.inputs]


def _drawn(port: Port, rng: np.random.Generator) -> Array:
    kind = element_type(port.dtype)
    if kind.is_float:
        return rng.standard_normal(port.shape, dtype=np.float32).astype(kind.numpy)
    lowest = [each.lowest for each in port.ranges] or [0]
    highest = [each.highest for each in port.ranges] or [1]
    return rng.integers(lowest, highest, port.shape, endpoint=True).astype(kind.numpy)


def open_served(artifacts: Mapping[str, Any], *, verify: bool = True) -> tuple[ServedNetwork, ...]:
    """The networks of artifact folders by name.

    Raises UsageError for none, and for artifacts of several shapes and decoders; ModelError for
    what is no artifact; TargetError for one that does not run on this machine's CPU.
    """
    folders = arguments.named_of(artifacts, "artifacts")
    if not folders:
        raise UsageError("No artifact is given.", hint="A name and a folder that `optimize` wrote.")
    return tuple(
        _open(name, arguments.path_of(path, f"the folder of {name!r}"), verify=verify)
        for name, path in folders.items()
    )


def _open(name: str, folder: Path, *, verify: bool) -> ServedNetwork:
    if is_shape_set(folder):
        members = read_shape_set(folder, verify=verify).members
        raise UsageError(
            f"{str(folder)!r} holds several shapes, and requests are for one",
            hint="Give the folders of those to be served, under names of their own: "
            + ", ".join(str(folder / member.folder) for member in members),
        )
    opened = open_artifact(folder, verify=verify)
    machine = opened.manifest.machine
    if machine.kind == CUDA:
        raise UsageError(
            f"{str(folder)!r} was made for {machine.model}; only networks for the CPU are served"
        )
    refuse_here(opened)
    return ServedNetwork(
        name=name,
        inputs=opened.manifest.inputs,
        outputs=opened.manifest.outputs,
        folder=folder.absolute(),
        constants=opened.manifest.constants,
    )


def named_folders(texts: Sequence[str]) -> dict[str, str]:
    """Artifacts as people name them on the command line: `FOLDER`, called like its last part, or
    `NAME=FOLDER`. Raises UsageError for two of one name."""
    found: dict[str, str] = {}
    for text in texts:
        name, given, folder = text.partition("=")
        if not given or Path(text).exists():
            name, folder = Path(text).resolve().name, text
        if name in found:
            raise UsageError(
                f"Two artifacts are called {name!r}: {found[name]} and {folder}",
                hint=f"Give one of them another name: other={folder}",
            )
        found[name] = folder
    return found

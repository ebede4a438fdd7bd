"""The networks of a server from artifact folders, and what people call those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.core import arguments
from tilewright.core.errors import UsageError
from tilewright.core.events import EventSink, discard
from tilewright.deploy.artifact import refuse_here
from tilewright.deploy.manifest import is_shape_set
from tilewright.deploy.opening import OpenedArtifact, open_artifact, open_member
from tilewright.deploy.shape_set import read_shape_set
from tilewright.kernels.cuda.base import CUDA
from tilewright.serving.batch_folders import (
    batch_members,
    fitting_sizes,
    opened_batches,
    require_known,
    told_or_raised,
)
from tilewright.serving.served import ServedNetwork


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

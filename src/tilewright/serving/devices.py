"""Which devices compute requests: this machine, and devices behind a tracker, each with those of
the artifacts that were compiled for it.

net = [made for x86, made for ARM], devices llvm and rpc:pi  →  the first here, the second there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.core import arguments
from tilewright.core.errors import TargetError, UsageError, first_line
from tilewright.core.events import EventSink
from tilewright.core.records import Placement
from tilewright.deploy.artifact import refuse_elsewhere, refuse_here
from tilewright.deploy.manifest import is_shape_set
from tilewright.deploy.opening import OpenedArtifact, open_artifact, open_member
from tilewright.deploy.shape_set import read_shape_set
from tilewright.hardware.remote import read_remote
from tilewright.kernels.base import CPU
from tilewright.measure.targeting import in_this_process, placement_of, usable_placement
from tilewright.serving.batch_folders import batch_members
from tilewright.serving.batches import NO_BATCHES
from tilewright.serving.networks import of_artifact, open_served, some_artifacts
from tilewright.serving.served import Elsewhere, ServedNetwork

_Folders = Mapping[str, Sequence[tuple[Path, OpenedArtifact]]]
"""The artifacts of each network, each with what computes one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDevices:
    """Networks as this machine computes them, or the first device where this one does not; what
    people call this machine, empty where it computes none; and the devices elsewhere."""

    networks: tuple[ServedNetwork, ...]
    here: str
    elsewhere: tuple[Elsewhere, ...] = ()


def open_on(
    artifacts: Mapping[str, Any],
    devices: Sequence[str],
    tracker: str | None,
    batches: object = None,
    *,
    verify: bool = True,
    events: EventSink,
) -> OnDevices:
    """The networks of artifacts, of which each name may have several, on devices by name; one that
    is named twice is two devices of its key.

    Raises as `open_served`; TargetError for a device that does not answer and for one that none of
    a network's artifacts was compiled for; UsageError for this machine twice, for a GPU, for
    artifacts of a name that are of different networks, and for `batches` where only devices
    elsewhere compute.
    """
    found = {
        name: [
            (folder, _smallest(folder, verify=verify))
            for folder in arguments.paths_of(given, f"the folder of {name!r}")
        ]
        for name, given in some_artifacts(artifacts).items()
    }
    for name, each in found.items():
        _require_one_network(name, each)
    known = _placements(devices, tracker)
    own = [device for device in devices if in_this_process(known[device])]
    chosen = {device: _fitting(found, device, known[device]) for device in known}
    elsewhere = tuple(
        Elsewhere(
            name=device,
            placement=known[device],
            networks={
                name: of_artifact(name, found[name][place][1])
                for name, place in chosen[device].items()
            },
        )
        for device in devices
        if device not in own
    )
    if own:
        folders = {name: found[name][place][0] for name, place in chosen[own[0]].items()}
        networks = open_served(folders, batches, verify=verify, events=events)
        return OnDevices(networks=networks, here=own[0], elsewhere=elsewhere)
    if max(arguments.counts_of(batches, "batches", 1), default=1) > 1:
        raise UsageError(
            "requests are put together to batches on this machine only",
            hint="Name this machine among the devices, too (llvm), or leave batches out.",
        )
    networks = tuple(replace(each, batches=NO_BATCHES) for each in elsewhere[0].networks.values())
    return OnDevices(networks=networks, here="", elsewhere=elsewhere)


def _smallest(folder: Path, *, verify: bool) -> OpenedArtifact:
    """What computes one request of an artifact."""
    if not is_shape_set(folder):
        return open_artifact(folder, verify=verify)
    shapes = read_shape_set(folder, verify=verify)
    return open_member(folder, batch_members(folder, shapes)[0], verify=verify)


def _require_one_network(name: str, found: Sequence[tuple[Path, OpenedArtifact]]) -> None:
    """Raise UsageError where artifacts of a name have other inputs or outputs, or, in the same
    precision, other operators."""
    (folder, first), *others = found
    one = first.manifest
    for place, each in others:
        other = each.manifest
        alike = one.source.precision == other.source.precision
        keys = {key for key in (one.network_key, other.network_key) if key and alike}
        if (one.inputs, one.outputs) != (other.inputs, other.outputs) or len(keys) > 1:
            raise UsageError(
                f"{str(folder)!r} and {str(place)!r} are called {name!r}, and are of different "
                "networks",
                hint="Artifacts of one name are the same network, compiled for different devices.",
            )


def _placements(devices: Sequence[str], tracker: str | None) -> dict[str, Placement]:
    """Each device by its name. Raises UsageError for this machine twice."""
    remote = [device for device in devices if read_remote(device)]
    known = {
        device: _placement(device, tracker if device in remote or not remote else None)
        for device in dict.fromkeys(devices)
    }
    own = [device for device in devices if in_this_process(known[device])]
    if len(own) > 1:
        raise UsageError(
            f"{own[0]!r} and {own[1]!r} are both this machine",
            hint=f"Name it once; --instances {len(own)}x1 says how many there are.",
        )
    return known


def _placement(device: str, tracker: str | None) -> Placement:
    """The CPU of that name, here or behind the tracker."""
    found = usable_placement(placement_of(device, tracker, None))
    if found.target.kind not in CPU:
        raise UsageError(
            f"{device!r} is no CPU; networks are served on CPUs, here and behind a tracker",
            hint="Leave that device out.",
        )
    return found


def _fitting(found: _Folders, device: str, placement: Placement) -> dict[str, int]:
    """The number of the first artifact of each network that runs on a device. Raises TargetError
    where none does."""
    return {name: _first_fitting(name, each, device, placement) for name, each in found.items()}


def _first_fitting(
    name: str,
    found: Sequence[tuple[Path, OpenedArtifact]],
    device: str,
    placement: Placement,
) -> int:
    refusals: list[TargetError] = []
    for number, (_, opened) in enumerate(found):
        try:
            refuse_elsewhere(opened, placement)
            if in_this_process(placement):
                refuse_here(opened)
        except TargetError as refusal:
            refusals.append(refusal)
        else:
            return number
    told = "; ".join(dict.fromkeys(map(first_line, refusals)))
    raise TargetError(
        f"no artifact of {name!r} runs on {device!r}: {told}",
        hint=f"{refusals[0].hint or ''} Several artifacts may have one name: "
        f"{name}=FOLDER {name}=OTHER.".strip(),
    )

"""Targets that can be used here; TVM has the last word, asked in a process of its own."""

from __future__ import annotations

from tilewright.core.errors import TargetError
from tilewright.core.events import EventSink, Note, discard
from tilewright.core.records import Placement
from tilewright.core.results import TargetRow
from tilewright.hardware.device import local_placement
from tilewright.measure.accesses.here import DESCRIBED, cannot_run
from tilewright.measure.accesses.registry import access_to, accesses


def usable_placement(placement: Placement, events: EventSink = discard) -> Placement:
    """The placement itself; raises TargetError when TVM refuses its target, or no device of it is
    at hand. What people should know of answers from there is told."""
    describable_placement(placement)
    if placement.device.access == DESCRIBED.name:
        raise cannot_run(placement)
    note = access_to(placement.device).note
    if note:
        events(Note(message=note))
    return placement


def placement_of(target: str, tracker: str | None, threads: int | None) -> Placement:
    """The placement a person means: this CPU, one that is described, or those behind a tracker.

    Raises `UsageError` when `tracker` is missing or not needed, `TargetError` when a tracker or its
    devices cannot be had.
    """
    asked = (access.placement(target, tracker, threads) for access in accesses().values())
    return next(placement for placement in asked if placement is not None)


def describable_placement(placement: Placement) -> Placement:
    """The placement itself, wherever it is; raises TargetError when TVM refuses its target."""
    if placement.target.tvm == local_placement(None).target.tvm:
        return placement
    refusal = access_to(placement.device).refusal(placement)
    if refusal is not None:
        raise TargetError(
            f"TVM refuses the target {placement.tvm_target}: {refusal}",
            hint="`tilewright targets` lists what can be used here.",
        )
    return placement


def target_rows(threads: int | None) -> tuple[TargetRow, ...]:
    """What `--target` takes: this CPU first, then the forms for others."""
    ways = sorted(accesses().values(), key=lambda access: not access.here)
    return tuple(row for access in ways for row in access.rows(threads))

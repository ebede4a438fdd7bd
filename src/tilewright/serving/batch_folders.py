"""Which folders of an artifact of several batch sizes compute several requests at a time.

batch 1, 2, 4, 6 of x float32[·, 3]  →  a request is float32[1, 3], and 2, 4 or 6 may run together
batch 2, 3, 4                        →  a request is float32[2, 3], and 2 may run together
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewright.core.errors import UsageError, first_line
from tilewright.core.events import EventSink, Note
from tilewright.deploy.manifest import Manifest
from tilewright.deploy.opening import open_member
from tilewright.deploy.shape_set import Extent, Member, ShapeSet, VariedAxis
from tilewright.kernels.spaces import MAX_ERRORS
from tilewright.serving.batches import NO_BATCHES, Batch, Batches

_BATCH = "batch"
_SIZES_DIFFER = 10.0
"""So many times what a network of its precision may err, results of one size may be off those of
another: each has kernels, and maybe types of numbers, of its own."""


def batch_members(folder: Path, shapes: ShapeSet) -> list[Member]:
    """The shapes by size, the one that requests are for first. Raises UsageError for shapes that
    differ in more than the batch."""
    if shapes.decoder is not None or [axis.name for axis in shapes.axes] != [_BATCH]:
        raise UsageError(
            f"{str(folder)!r} holds several shapes, and requests are for one",
            hint="Give the folders of those to be served, under names of their own: "
            + ", ".join(str(folder / member.folder) for member in shapes.members),
        )
    return sorted(shapes.members, key=lambda member: member.sizes[_BATCH])


def opened_batches(
    folder: Path, shapes: ShapeSet, allowed: Sequence[int] | None, *, verify: bool
) -> Batches:
    """What computes several requests for the smallest shape at a time: larger ones, of the batch
    sizes `allowed` (None: all). Raises UsageError where requests cannot be put together, ModelError
    for a damaged artifact."""
    smallest, *others = batch_members(folder, shapes)
    least = smallest.sizes[_BATCH]
    wanted = [
        (member.sizes[_BATCH] // least, member)
        for member in others
        if not member.sizes[_BATCH] % least and (allowed is None or member.sizes[_BATCH] in allowed)
    ]
    if not wanted:
        return Batches()
    first = open_member(folder, smallest, verify=verify).manifest
    inputs, outputs = _joined_axes(folder, shapes.axes[0], first)
    opened = [(size, open_member(folder, member, verify=verify)) for size, member in wanted]
    larger = tuple(
        Batch(size=size, folder=each.folder.absolute(), constants=each.manifest.constants)
        for size, each in opened
    )
    most = _SIZES_DIFFER * MAX_ERRORS[first.source.precision]
    return Batches(larger=larger, inputs=inputs, outputs=outputs, max_error=most)


def _joined_axes(
    folder: Path, axis: VariedAxis, manifest: Manifest
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axis of each input and of each output along which requests lie behind each other. Raises
    UsageError where a result depends on its neighbours in a batch, or is not of its length."""
    ports = (manifest.inputs, axis.inputs), (manifest.outputs, axis.outputs)
    found = [[_joined_axis(extents.get(p.name, ())) for p in each] for each, extents in ports]
    strange = [
        port.name
        for (each, _), axes in zip(ports, found, strict=True)
        for port, place in zip(each, axes, strict=True)
        if place is None
    ]
    if axis.pads and not strange:
        inputs, outputs = (tuple(p for p in axes if p is not None) for axes in found)
        return inputs, outputs
    why = axis.reason or f"because {strange[0]!r} does not grow with the batch"
    raise not_together(str(folder), why)


def _joined_axis(extents: Sequence[Extent]) -> int | None:
    return extents[0].axis if len(extents) == 1 and not extents[0].more else None


def not_together(name: str, why: str) -> UsageError:
    """What is said where requests must run alone."""
    return UsageError(
        f"requests for {name!r} cannot be put together, {why}",
        hint="Leave out --batches (batches in Python): it is served one by one then, and others in "
        "batches; or give --batches 1, and nothing runs in batches.",
    )


def told_or_raised(error: UsageError, events: EventSink, *, asked: bool) -> Batches:
    """No batches, and a note why; the error itself for whoever asked for some."""
    if asked:
        raise error
    events(Note(message=f"Served one by one: {first_line(error)}."))
    return NO_BATCHES


def fitting_sizes(shapes: ShapeSet) -> tuple[int, ...]:
    """The batch sizes of an artifact that whole requests, of its smallest, fill."""
    (axis,) = shapes.axes
    return tuple(size for size in axis.sizes if not size % min(axis.sizes))


def require_known(wished: Sequence[int], known: Iterable[int]) -> None:
    """Raise UsageError for a batch size that no artifact has; `known` are those of all."""
    sizes = {1, *known}
    unknown = [size for size in wished if size not in sizes]
    if unknown:
        told = ", ".join(map(str, sorted(sizes)))
        raise UsageError(
            f"no artifact has a batch of {unknown[0]} that whole requests fill",
            hint=f"Known: {told}. `tilewright optimize --batch 1,{unknown[0]}` makes one.",
        )

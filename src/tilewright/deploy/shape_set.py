"""Several shapes of one network in one artifact: what is in its folder, and which shape takes what.

    shapes.json          the shapes and what they differ in
    weights-0f3a….params the packed constants of all, equal ones once
    batch1/              an artifact of its own, with a reference in place of weights
    batch4/

Arrays that no shape was made for go to the nearest larger one along axes that may be padded:

    x float32[3, 224]  →  batch4: x float32[4, 224], a row of zeros at the end; of y the first three
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from tilewright.core import codec
from tilewright.core.errors import DamagedArtifact, UsageError
from tilewright.core.output_files import write_text
from tilewright.deploy.hashes import is_sealed, sealed
from tilewright.deploy.manifest import SHAPES, Manifest, Port
from tilewright.deploy.network_calls import typed
from tilewright.graph.network import Array
from tilewright.models.decoder import DecoderRoles

_SCHEMA_VERSION = 1

Sizes = Mapping[str, int]
"""The size of each axis in which shapes differ, by its name; `batch` is the one of `--batch`."""
Size = Annotated[int, msgspec.Meta(ge=1)]


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How long axis `axis` of a port is: `factor` · size + `more`."""

    axis: int
    factor: Size
    more: int = 0

    def of(self, size: int) -> int:
        """The extent where the axis has this size."""
        return self.factor * size + self.more

    def size(self, extent: int) -> int | None:
        """The size at which the port is so long; None where there is none."""
        size, rest = divmod(extent - self.more, self.factor)
        return size if size >= 1 and not rest else None


class VariedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis in which the shapes differ: its sizes, and where it occurs in inputs and outputs.

    `pads` says whether arrays may be filled up with zeros to the next larger size; `reason` why
    not.
    """

    name: str
    sizes: tuple[Size, ...]
    inputs: dict[str, tuple[Extent, ...]]
    outputs: dict[str, tuple[Extent, ...]]
    pads: bool
    reason: str = ""

    def size_in(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Its size in arrays of these shapes, by input. Raises UsageError where they disagree."""
        found = {
            name: extent.size(shapes[name][extent.axis])
            for name, extents in self.inputs.items()
            for extent in extents
            if name in shapes and extent.axis < len(shapes[name])
        }
        sizes = {size for size in found.values() if size is not None}
        if len(sizes) != 1 or None in found.values():
            told = ", ".join(f"{name!r} {list(shapes[name])}" for name in found)
            raise UsageError(
                f"the inputs do not agree on one size of {self.name!r}: {told or 'none has it'}",
                hint=f"This artifact has {self.name} {_listed(self.sizes)}.",
            )
        return sizes.pop()

    def next_size(self, size: int) -> int:
        """The size that arrays of this size are computed at. Raises UsageError where there is
        none."""
        if size in self.sizes:
            return size
        larger = [each for each in self.sizes if each > size]
        has = f"this artifact has {_listed(self.sizes)}"
        if not larger:
            raise UsageError(
                f"{self.name} is {size}, larger than any shape: {has}",
                hint="Give fewer at a time, or run `tilewright optimize` with a larger one, too.",
            )
        if not self.pads:
            raise UsageError(
                f"{self.name} is {size}: {has}, and it is not padded, {self.reason}",
                hint="Give arrays of one of these sizes.",
            )
        return min(larger)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One of the shapes: its folder within the artifact's, the sizes of the axes, and the
    fingerprint of the network that lies there."""

    folder: str
    sizes: dict[str, Size]
    fingerprint: str = ""


class ShapeSet(msgspec.Struct, frozen=True, kw_only=True):
    """What `shapes.json` holds. The networks of a `decoder` are no shapes of one another: they have
    no axes in common, and their members' sizes say what each is for."""

    model: str
    axes: tuple[VariedAxis, ...]
    members: tuple[Member, ...]
    decoder: DecoderRoles | None = None
    schema_version: int = _SCHEMA_VERSION
    sha256: dict[str, str] = {}

    def __post_init__(self) -> None:
        names = {axis.name for axis in self.axes}
        others = any(member.sizes.keys() != names for member in self.members)
        if not self.members or (others and self.decoder is None):
            raise ValueError("a shape has other axes than the artifact")
        folders = [member.folder for member in self.members]
        elsewhere = any(Path(f).name != f or f in ("", "..") for f in folders)
        if len({*folders}) < len(folders) or elsewhere:
            raise ValueError("two shapes have one folder, or one is elsewhere")

    def asked_for(self, batch: int | None, shapes: Mapping[str, tuple[int, ...]]) -> Member:
        """The shape that `--batch` and `--shape` say. Raises UsageError where they say none."""
        for name, shape in shapes.items():
            if len(shape) != 1:
                raise UsageError(
                    f"an artifact has fixed shapes: {name!r} cannot be {list(shape)}",
                    hint="--shape names the size of an axis here, as in --shape tokens=32.",
                )
        sizes = {} if batch is None else {"batch": batch}
        return self.member(sizes | {name: shape[0] for name, shape in shapes.items()})

    def member(self, sizes: Sizes) -> Member:
        """The shape of these sizes. Raises UsageError where there is none."""
        for member in self.members:
            if member.sizes == dict(sizes):
                return member
        raise UsageError(
            f"the artifact has no shape {described(sizes)}"
            if sizes
            else "the artifact has several shapes, and none is named",
            hint="It has: " + "; ".join(described(m.sizes) for m in self.members) + ". Name one "
            "with --batch and --shape, or give its folder.",
        )

    def choice(self, shapes: Mapping[str, tuple[int, ...]]) -> Choice:
        """Which shape computes arrays of these shapes, by input. Raises UsageError where none
        does."""
        given = {axis.name: axis.size_in(shapes) for axis in self.axes}
        sizes = {axis.name: axis.next_size(given[axis.name]) for axis in self.axes}
        for axis in self.axes:
            ends = [e.of(given[axis.name]) for extents in axis.outputs.values() for e in extents]
            if min(ends, default=1) < 1:
                raise UsageError(f"{axis.name} is {given[axis.name]}: an output would be empty")
        return Choice(member=self.member(sizes), given=given, axes=self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The shape that computes some arrays, in which the axes have the sizes `given`."""

    member: Member
    given: Sizes
    axes: tuple[VariedAxis, ...]

    @property
    def pads(self) -> bool:
        """Whether the arrays are filled up."""
        return dict(self.given) != self.member.sizes

    def __str__(self) -> str:
        told = described(self.given)
        return f"{told} run as {described(self.member.sizes)}, padded" if self.pads else told

    def padded(self, ports: Sequence[Port], arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays as the shape takes them: filled up at the end of each axis, with zeros, or
        what is nearest to zero among the valid indices."""
        return {**arrays, **{p.name: self._filled(p, arrays[p.name]) for p in ports if self.pads}}

    def cut(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Of the outputs what belongs to the given arrays."""
        found = dict(outputs)
        for axis in self.axes if self.pads else ():
            for name, extents in axis.outputs.items():
                for extent in extents:
                    kept = slice(extent.of(self.given[axis.name]))
                    found[name] = found[name][(slice(None),) * extent.axis + (kept,)]
        return found

    def _filled(self, port: Port, array: Array) -> Array:
        extents = [e for axis in self.axes for e in axis.inputs.get(port.name, ())]
        if not extents:
            return array
        grown = list(array.shape)
        for extent in extents:
            grown[extent.axis] = port.shape[extent.axis]
        if tuple(grown) != port.shape:
            raise UsageError(
                f"input {port.name!r} is {array.dtype}{list(array.shape)}, which does not fit "
                f"{typed(port)} even when it is padded"
            )
        lowest = max((valid.lowest for valid in port.ranges), default=0)
        highest = min((valid.highest for valid in port.ranges), default=0)
        fill = 0 if not port.ranges else min(max(0, lowest), highest)
        result: Array = np.full(grown, fill, array.dtype)
        result[tuple(map(slice, array.shape))] = array
        return result


def varied_axes(
    members: Sequence[tuple[Member, Manifest]], padded: Sequence[str]
) -> tuple[VariedAxis, ...]:
    """The axes in which shapes differ; of those `padded` arrays may be filled up, where it is clear
    how long each input and output is then."""
    (first, _), *_ = members
    return tuple(_varied(name, members, padded) for name in first.sizes)


def _varied(
    name: str, members: Sequence[tuple[Member, Manifest]], padded: Sequence[str]
) -> VariedAxis:
    rest = _others(members[0][0].sizes, name)
    alike = [
        (member.sizes[name], manifest)
        for member, manifest in members
        if _others(member.sizes, name) == rest
    ]
    ports = [
        (size, {p.name: p for p in m.inputs}, {p.name: p for p in m.outputs}) for size, m in alike
    ]
    inputs = _extents([(size, i) for size, i, _ in ports])
    outputs = _extents([(size, o) for size, _, o in ports])
    reason = "" if name in padded else "because nobody asked for that (--pad)"
    if inputs is None or outputs is None:
        reason = "because the lengths of inputs or outputs do not follow from it"
    return VariedAxis(
        name=name,
        sizes=tuple(sorted(size for size, _ in alike)),
        inputs=inputs or {},
        outputs=outputs or {},
        pads=not reason,
        reason=reason,
    )


def _others(sizes: Sizes, name: str) -> dict[str, int]:
    return {axis: size for axis, size in sizes.items() if axis != name}


def _extents(
    ports: Sequence[tuple[int, Mapping[str, Port]]],
) -> dict[str, tuple[Extent, ...]] | None:
    """Where ports grow with a size; None where they do not grow evenly."""
    (one, first), *others = ports
    if not others:
        return {}
    found: dict[str, tuple[Extent, ...]] = {}
    two, second = others[0]
    for name, port in first.items():
        grown = second[name].shape
        extents: list[Extent] = []
        for axis, (a, b) in enumerate(zip(port.shape, grown, strict=True)):
            factor, rest = divmod(b - a, two - one)
            if a == b:
                continue
            if rest or factor < 1:
                return None
            extents.append(Extent(axis=axis, factor=factor, more=a - factor * one))
        for size, more in others:
            if any(e.of(size) != more[name].shape[e.axis] for e in extents):
                return None
        if extents:
            found[name] = tuple(extents)
    return found


def described(sizes: Sizes) -> str:
    """`batch 4, tokens 32`."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def write_shape_set(folder: Path, shapes: ShapeSet) -> None:
    """Write `shapes.json` with its own hash."""
    content: dict[str, Any] = json.loads(json.dumps(codec.to_builtins(shapes)))
    text = json.dumps(sealed(content, SHAPES), indent=1, sort_keys=True)
    write_text(folder / SHAPES, text + "\n")


def read_shape_set(folder: Path, *, verify: bool = True) -> ShapeSet:
    """The shapes of an artifact. Raises DamagedArtifact for a file that is not as it was written;
    without `verify` only where its form shows it."""
    path = folder / SHAPES
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = codec.convert(content, ShapeSet)
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedArtifact(path, str(error)) from error
    if found.schema_version != _SCHEMA_VERSION:
        raise DamagedArtifact(path, f"it has schema version {found.schema_version}")
    if verify and not is_sealed(content, SHAPES):
        raise DamagedArtifact(path, "its content does not fit its hash")
    return found

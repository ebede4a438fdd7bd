"""`optimize` for several shapes of one network: one artifact that holds its weights once.

Shape after shape, the largest first, is made into an artifact of its own, below the folder of all.
Each searches with
its part of the budget and starts from what was measured for those before it, as for any similar
task. Then equal weights of all are put into one file, and padding is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from tilewright.core import weights
from tilewright.core.artifacts import ShapesResult
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.output_files import attempting, replacing
from tilewright.core.records import Placement
from tilewright.core.results import OptimizeResult
from tilewright.deploy.artifact import ShapedArtifact, load_shapes
from tilewright.deploy.manifest import Manifest, read_manifest
from tilewright.deploy.opening import describe_shapes
from tilewright.deploy.optimizing import Shipped, ship
from tilewright.deploy.publishing import remove_artifact, reseal
from tilewright.deploy.shape_set import (
    Choice,
    Member,
    ShapeSet,
    Sizes,
    VariedAxis,
    described,
    forget_shapes,
    varied_axes,
    write_shape_set,
)
from tilewright.graph.inputs import input_ranges, random_inputs
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.measure import checking, targeting
from tilewright.report import displays
from tilewright.search.levels import OptimizeRequest
from tilewright.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesRequest:
    """What is asked for several shapes: a request as for one of them, whose budget and folder are
    for all; each shape's sizes with the model's options; the axes along which arrays may be padded.
    """

    request: OptimizeRequest
    shapes: Sequence[tuple[Sizes, OptimizeRequest]]
    padded: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedShapes:
    """A network that `optimize` shipped in several shapes: its numbers in `result`, its files in
    `folder`."""

    result: ShapesResult
    folder: Path

    def load(self, *, threads: int | None = None) -> ShapedArtifact:
        """The network, ready to run in this process on arrays of any of its shapes; raises what
        `tilewright.load` raises."""
        return load_shapes(self.folder, threads)

    def _repr_html_(self) -> str:
        found = displays.page(self.result)
        assert found is not None, "every result has a page"
        return displays.notebook_html(found)

    def __repr__(self) -> str:
        return repr(self.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A shape that was made, and inputs to try it with."""

    member: Member
    result: OptimizeResult
    inputs: Mapping[str, Array]
    plan: NetworkPlan


def optimize_shapes(
    asked: ShapesRequest, placement: Placement, store: Store, events: EventSink
) -> ShapesResult:
    """Make one artifact of several shapes. Raises as `optimize`; what was made before stays, and a
    repeated command goes on from there."""
    folder, made = asked.request.folder, list[_Made]()
    # packings of large shapes suit small ones, not the other way round
    for number, (sizes, request) in enumerate(reversed(asked.shapes), 1):
        detail = f"{described(sizes)} ({number} of {len(asked.shapes)})"
        events(Stage(name="shape", detail=detail))
        member = Member(folder=folder_name(sizes), sizes=dict(sizes))
        request = replace(request, folder=folder / member.folder)
        shipped = ship(request, placement, store, events, [each.plan for each in made])
        made.append(_made(member, shipped))
    made.reverse()
    with attempting(f"write to {folder}"):
        shared = _share([folder / each.member.folder for each in made], folder)
        manifests = [(m.member, read_manifest(folder / m.member.folder)) for m in made]
        axes = varied_axes(manifests, asked.padded)
        axes = tuple(
            _tried(axis, axes, (made, manifests), placement, asked.request) for axis in axes
        )
        forget_shapes(folder, [shared, *(each.member.folder for each in made)])
        remove_artifact(folder)
        _remove_others(folder, shared)
        members = tuple(each.member for each in made)
        write_shape_set(folder, ShapeSet(model=made[0].result.model, axes=axes, members=members))
    for axis in axes:
        if not axis.pads and axis.name in asked.padded:
            events(Note(message=f"{axis.name} is not padded, {axis.reason}."))
    return replace(
        describe_shapes(folder, verify=False),
        measurements=sum(each.result.measurements for each in made),
        elapsed_s=sum(each.result.elapsed_s for each in made),
        warnings=tuple(dict.fromkeys(w for each in made for w in each.result.warnings)),
    )


def folder_name(sizes: Sizes) -> str:
    """`batch4-tokens32`, the folder of a shape."""
    names = {name: "".join(c if c.isalnum() else "_" for c in name) for name in sizes}
    return "-".join(f"{names[name]}{size}" for name, size in sizes.items())


def _made(member: Member, shipped: Shipped) -> _Made:
    graph = shipped.network.model.graph
    valid = input_ranges(graph)
    inputs = {
        # whole numbers that are no indices are masks, most of the time
        name: np.ones_like(array) if name not in valid and array.dtype.kind in "iub" else array
        for name, array in random_inputs(graph, 0).items()
    }
    assert shipped.plan is not None, "a shape was compiled"
    return _Made(member=member, result=shipped.result, inputs=inputs, plan=shipped.plan)


def _share(folders: Sequence[Path], folder: Path) -> str:
    """Put the weights of all shapes into one file; its name, empty where they are kept in another
    format."""
    files = [each / weights.WEIGHTS for each in folders]
    try:
        path, references = weights.share(files, folder)
    except ValueError:  # what is simulated has no packed weights
        return ""
    for file, reference in zip(files, references, strict=True):
        if weights.reference_in(file) != reference:
            with reseal(file.parent), replacing(file) as temporary:
                weights.write_reference(temporary, reference)
    return path.name


def _remove_others(folder: Path, kept: str) -> None:
    for path in folder.glob("weights-*.params"):
        if path.name != kept:
            path.unlink()


def _tried(
    axis: VariedAxis,
    axes: tuple[VariedAxis, ...],
    shapes: tuple[Sequence[_Made], Sequence[tuple[Member, Manifest]]],
    placement: Placement,
    request: OptimizeRequest,
) -> VariedAxis:
    """The axis, no longer padded where results of padded arrays are others: each shape's inputs are
    run in the next larger one, and what belongs to them is compared."""
    made, manifests = shapes
    error = 0.0
    for each in made if axis.pads else ():
        larger = [size for size in axis.sizes if size > each.member.sizes[axis.name]]
        if not larger:
            continue
        wanted = {**each.member.sizes, axis.name: min(larger)}
        member, manifest = next(pair for pair in manifests if pair[0].sizes == wanted)
        choice = Choice(member=member, given=each.member.sizes, axes=axes)
        own = next(own for m, own in manifests if m is each.member)
        with targeting.open_networks(placement) as networks:
            outputs: list[list[Array]] = []
            for place, of, arrays in (
                (each.member, own, each.inputs),
                (member, manifest, choice.padded(manifest.inputs, each.inputs)),
            ):
                networks.load(place.folder, request.folder / place.folder, of.constants)
                ordered = [arrays[port.name] for port in of.inputs]
                outputs.append(networks.run(place.folder, ordered))
        names = [port.name for port in own.outputs]
        cut = choice.cut(dict(zip(names, outputs[1], strict=True)))
        ours = [cut[name] for name in names]
        if any(a.shape != b.shape for a, b in zip(ours, outputs[0], strict=True)):
            return structs.replace(
                axis, pads=False, reason="because outputs have other shapes then"
            )
        check = checking.compare_outputs(ours, outputs[0], tuple(names))
        error = max(error, check.max_rel_error)
    if error <= request.max_error:
        return axis
    reason = f"because it changes results by {error:.2g} of the largest value"
    return structs.replace(axis, pads=False, reason=reason)

"""`optimize` for several shapes of one network: one artifact that holds its weights once.

Shape after shape, the largest first, is made into an artifact of its own, below the folder of all.
Each searches with
its part of the budget and starts from what was measured for those before it, as for any similar
task. Then equal weights of all are put into one file, and padding is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from tilewright.core import weights
from tilewright.core.artifacts import ShapesResult
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.output_files import attempting, replacing
from tilewright.core.records import Placement
from tilewright.core.results import OptimizeResult
from tilewright.deploy.artifact import ShapedArtifact, load_shapes
from tilewright.deploy.manifest import read_manifest
from tilewright.deploy.opening import describe_shapes
from tilewright.deploy.optimizing import Shipped, ship
from tilewright.deploy.publishing import forget_shapes, remove_artifact, reseal
from tilewright.deploy.shape_set import (
    Choice,
    Member,
    ShapeSet,
    Sizes,
    VariedAxis,
    described,
    varied_axes,
    write_shape_set,
)
from tilewright.deploy.sharing import OtherShapes
from tilewright.graph.inputs import input_ranges, random_inputs
from tilewright.graph.network import Array
from tilewright.graph.plan import NetworkPlan
from tilewright.measure import checking, targeting
from tilewright.models.loaded import ON_CODES
from tilewright.models.shape_grid import ShapeGrid
from tilewright.plan.preparation import prepare
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


def shapes_request(whole: OptimizeRequest, grid: ShapeGrid) -> ShapesRequest:
    """The request for each shape of a grid, each with an equal part of the budget."""
    shapes = grid.shapes(whole.options)
    part = whole.budget.part(1 / len(shapes))
    return ShapesRequest(
        request=whole,
        shapes=[(sizes, replace(whole, options=options, budget=part)) for sizes, options in shapes],
        padded=grid.padded,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralNetworks:
    """Networks that `optimize` shipped together: their numbers in `result`, their files in
    `folder`."""

    result: ShapesResult
    folder: Path

    def _repr_html_(self) -> str:
        found = displays.page(self.result)
        assert found is not None, "every result has a page"
        return displays.notebook_html(found)

    def __repr__(self) -> str:
        return repr(self.result)


class OptimizedShapes(SeveralNetworks):
    """A network that `optimize` shipped in several shapes: its numbers in `result`, its files in
    `folder`."""

    def load(self, *, threads: int | None = None) -> ShapedArtifact:
        """The network, ready to run in this process on arrays of any of its shapes; raises what
        `tilewright.load` raises."""
        return load_shapes(self.folder, threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeShape:
    """A shape that was made, its plan, and inputs to try it with."""

    member: Member
    result: OptimizeResult
    plan: NetworkPlan
    inputs: Mapping[str, Array]


def optimize_shapes(
    asked: ShapesRequest, placement: Placement, store: Store, events: EventSink
) -> ShapesResult:
    """Make one artifact of several shapes. Raises as `optimize`; what was made before stays, and a
    repeated command goes on from there."""
    folder = asked.request.folder
    # packings of large shapes suit small ones, not the other way round
    made = ship_each([*reversed(asked.shapes)], folder, placement, store, events)[::-1]

    def together() -> ShapeSet:
        axes = _axes(made, asked, placement)
        for axis in axes:
            if not axis.pads and axis.name in asked.padded:
                events(Note(message=f"{axis.name} is not padded, {axis.reason}."))
        members = tuple(each.member for each in made)
        return ShapeSet(model=made[0].result.model, axes=axes, members=members)

    return put_together(made, folder, together)


def ship_each(
    shapes: Sequence[tuple[Sizes, OptimizeRequest]],
    folder: Path,
    placement: Placement,
    store: Store,
    events: EventSink,
) -> list[MadeShape]:
    """An artifact for each shape, below `folder`, made one after the other; each packs its weights
    as those before it, the first one as those after it would, where that costs little."""
    if any(request.options.precision == ON_CODES for _, request in shapes):
        raise UsageError(
            "networks are put on codes of eight bits in one shape only",
            hint="Leave out --precision, or give one shape.",
        )
    made: list[MadeShape] = []
    later = [
        prepare(request.model, request.options, targeting.allowing(placement, request.options)).plan
        for _, request in shapes[1:]
    ]
    for number, (sizes, request) in enumerate(shapes, 1):
        events(Stage(name="shape", detail=f"{described(sizes)} ({number} of {len(shapes)})"))
        name = folder_name(sizes)
        request = replace(request, folder=folder / name)
        others = OtherShapes([each.plan for each in made], later[number - 1 :])
        shipped = ship(request, placement, store, events, others)
        fingerprint = read_manifest(request.folder).fingerprint
        member = Member(folder=name, sizes=dict(sizes), fingerprint=fingerprint)
        made.append(_made(member, shipped))
    return made


def put_together(
    made: Sequence[MadeShape], folder: Path, shape_set: Callable[[], ShapeSet]
) -> ShapesResult:
    """One artifact of several that lie below `folder`: weights that lie there once, and what
    `shape_set` says when they do. What was in the folder before is gone then."""
    with attempting(f"write to {folder}"):
        shared = _share([folder / each.member.folder for each in made], folder)
        found = shape_set()
        forget_shapes(folder, [shared, *(each.member.folder for each in made)])
        remove_artifact(folder)
        write_shape_set(folder, found)
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


def _made(member: Member, shipped: Shipped) -> MadeShape:
    graph = shipped.network.model.graph
    valid = input_ranges(graph)
    inputs = {
        # whole numbers that are no indices are masks, most of the time
        name: np.ones_like(array) if name not in valid and array.dtype.kind in "iub" else array
        for name, array in random_inputs(graph, 0).items()
    }
    assert shipped.plan is not None, "a shape was compiled"
    return MadeShape(member=member, result=shipped.result, inputs=inputs, plan=shipped.plan)


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


def _axes(
    made: Sequence[MadeShape], asked: ShapesRequest, placement: Placement
) -> tuple[VariedAxis, ...]:
    """What the shapes differ in. Padding is tried: where it changes results there is none."""
    folder = asked.request.folder
    manifests = {m.member.folder: read_manifest(folder / m.member.folder) for m in made}
    pairs = [(each.member, manifests[each.member.folder]) for each in made]
    axes = varied_axes(pairs, asked.padded)
    for axis in axes:
        if not axis.inputs:
            raise ModelError(
                f"no input of {made[0].result.model!r} changes its shape with {axis.name}",
                hint="Leave it out.",
            )
    if not any(axis.pads for axis in axes):
        return axes
    with targeting.open_networks(placement) as networks:

        def run(member: Member, inputs: Mapping[str, Array]) -> dict[str, Array]:
            manifest = manifests[member.folder]
            networks.load(member.folder, folder / member.folder, manifest.constants)
            results = networks.run(member.folder, [inputs[port.name] for port in manifest.inputs])
            networks.unload(member.folder)
            return dict(zip([port.name for port in manifest.outputs], results, strict=True))

        def padded(choice: Choice, inputs: Mapping[str, Array]) -> dict[str, Array]:
            ports = manifests[choice.member.folder].inputs
            return choice.cut(run(choice.member, choice.padded(ports, inputs)))

        return tuple(
            structs.replace(axis, pads=not fault, reason=fault) if axis.pads else axis
            for axis in axes
            for fault in [_fault(axis, axes, made, (run, padded), asked.request)]
        )


_Run = Callable[[Member, Mapping[str, Array]], dict[str, Array]]
_RunPadded = Callable[[Choice, Mapping[str, Array]], dict[str, Array]]


def _fault(
    axis: VariedAxis,
    axes: tuple[VariedAxis, ...],
    made: Sequence[MadeShape],
    runs: tuple[_Run, _RunPadded],
    request: OptimizeRequest,
) -> str:
    """Why an axis cannot be padded, empty where it can: the inputs of each shape are run in the
    next larger one, and what belongs to them is compared."""
    run, run_padded = runs
    members = {tuple(each.member.sizes.items()): each.member for each in made}
    for each in made if axis.pads else ():
        sizes = each.member.sizes
        larger = [size for size in axis.sizes if size > sizes[axis.name]]
        if not larger:
            continue
        member = members[tuple({**sizes, axis.name: min(larger)}.items())]
        found = run_padded(Choice(member=member, given=sizes, axes=axes), each.inputs)
        wanted = run(each.member, each.inputs)
        if any(found[name].shape != array.shape for name, array in wanted.items()):
            return "because outputs differ in shape"
        check = checking.compare_outputs([*found.values()], [*wanted.values()], tuple(wanted))
        if not request.allows(check):
            return f"because it changes results by {check.max_rel_error:.2g} of the largest value"
    return ""

"""The convolutions of five networks, and what computes each with a unit and in a layout.

A side is a pair of both. Its candidates are those with the least estimates, implementations in
turn and each register tile once, and some that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from typing import Any

import numpy as np

from tilewright.core.forms import CHANNELS_LAST, PLAIN, Form, channel_block
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Step, Workload
from tilewright.hardware.device import parse_target
from tilewright.kernels.columns import Floats, column
from tilewright.kernels.conv2d_direct import DirectConvolution
from tilewright.kernels.convolution import convolution, plane_tiles
from tilewright.kernels.knobs import split
from tilewright.kernels.register_tile import RegisterTile, TiledSums
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import LISTED
from tilewright.kernels.spaces import TaskSpace
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare

NETWORKS = ("resnet50", "vgg19_bn", "inception_v3", "densenet201", "ssd_resnet50_512")
UNITS = {"AVX-512": "llvm", "AVX2": "llvm -mcpu=x86-64-v3"}
"""The TVM target of each; with the first, all that this machine has."""
BEST, DRAWN = 5, 3
"""Candidates of a side: with the least estimates, and drawn."""
MORE = 4 * (BEST + DRAWN)
CONVOLUTIONS = ("conv2d_direct", "conv2d_winograd", "conv2d_winograd2", "conv2d_winograd1d")
PRODUCT = "batch_matmul_tiled"
_HOPELESS = 6.0
_DRAWN_FROM = 2.0
"""Candidates are drawn from those with estimates of at most so many times the least."""
FEW_CHANNELS = 4

Choice = tuple[Workload, Candidate]


@dataclass(frozen=True, slots=True)
class Side:
    """A unit and a layout that compete."""

    unit: str
    layout: str

    @property
    def name(self) -> str:
        """`AVX2 NCHWc`, say."""
        return f"{self.unit} {self.layout}"


SIDES = (
    Side("AVX-512", "NCHWc"),
    Side("AVX2", "NCHWc"),
    Side("AVX-512", "NCHW"),
    Side("AVX-512", "NHWC"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A distinct convolution, and how often each network computes it."""

    workload: Workload
    name: str
    calls: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Family:
    """The settings of one implementation in all forms that a side allows, and their estimates."""

    workload: Workload
    spaces: tuple[TaskSpace, ...]

    @property
    def name(self) -> str:
        """The implementation."""
        return self.spaces[0].spec.name

    @property
    def direct(self) -> tuple[TaskSpace, ...]:
        """The spaces, where the implementation is the direct convolution."""
        return self.spaces if self.name == DirectConvolution.name else ()

    @property
    def settings(self) -> int:
        """How many there are."""
        return sum(
            len(s.numbers) if s.part.knobs.range_length <= LISTED else len(s.part.knobs.listed())
            for s in self.spaces
        )

    @cached_property
    def estimates_s(self) -> Floats:
        """Of all settings."""
        return np.concatenate([space.estimates_s for space in self.spaces])

    def located(self, index: int) -> tuple[TaskSpace, int]:
        """The space that the setting with an index over all of them lies in, and its number."""
        for space in self.spaces:
            if index < len(space.numbers):
                return space, int(space.numbers[index])
            index -= len(space.numbers)
        raise IndexError(index)

    def candidate(self, index: int) -> Candidate:
        """The candidate with an index over all spaces."""
        space, number = self.located(index)
        return space.part.candidate(number)

    def tile(self, index: int) -> tuple[object, ...]:
        """What a candidate keeps in registers, and in strips."""
        space, number = self.located(index)
        settings = space.part.knobs.settings(number)
        register = space.placement.target.lanes("float32")
        assert isinstance(space.spec, TiledSums)
        tile = space.spec.tile([settings], register)
        return float(tile.rows[0]), float(tile.vectors[0]), settings.get("strip")


class WideDirect(DirectConvolution):
    """The direct convolution with tiles of any width and height, and with those that need a few
    registers more than there are by the model."""

    def knobs(self, workload, target, resources, forms):
        """All knobs, with more values of those of the tile."""
        conv = convolution(workload)
        sizes = {
            "tile_width": range(1, min(conv.out_width, 32) + 1),
            "tile_height": range(1, min(conv.out_height, 8) + 1),
            "tile_out": range(1, 7),
        }
        found = super().knobs(workload, target, resources, forms)
        return tuple(
            split(k.name, 0, policy="candidates", candidates=list(sizes[k.name]))
            if k.name in sizes
            else k
            for k in found
        )

    def valid_many(self, workload, target, resources, forms, settings):
        """Those that waste a third of the work at most."""
        roomy = replace(target, vector_registers=target.vector_registers + 4)
        conv = convolution(workload)
        high, wide = column(settings, "tile_height"), column(settings, "tile_width")
        covered = np.ceil(conv.out_height / high) * high * np.ceil(conv.out_width / wide) * wide
        thrifty = covered <= 4 / 3 * conv.pixels
        return thrifty & super().valid_many(workload, roomy, resources, forms, settings)


@cache
def placement(unit: str) -> Placement:
    """One thread of this machine with the instructions of a unit."""
    return parse_target(UNITS[unit], 1)


def layers(networks: Sequence[str] = NETWORKS) -> list[Layer]:
    """The distinct convolutions of the networks, in their order."""
    found: dict[str, Layer] = {}
    for network in networks:
        prepared = prepare(f"zoo:{network}", ModelOptions(), placement("AVX-512"))
        for task in prepared.tasks.values():
            if task.workload.anchor_name == "conv2d":
                new = Layer(workload=task.workload, name=f"{network} {task.name}", calls={})
                layer = found.get(task.workload.key, new)
                calls = {**layer.calls, network: layer.calls.get(network, 0) + task.count}
                found[task.workload.key] = replace(layer, calls=calls)
    return list(found.values())


def ports(workload: Workload, layout: str, offered: Sequence[tuple[Form, ...]]) -> list[Any]:
    """The forms of ports in a layout: `offered` ones in blocks, or NCHW or NHWC on all sides. Data
    of few channels may be plain beside results in blocks."""
    conv = convolution(workload)
    if layout == "NCHWc":
        few = conv.in_channels <= FEW_CHANNELS
        return [p for p in offered if channel_block(p[-1]) and (few or channel_block(p[conv.data]))]
    form = {"NCHW": PLAIN, "NHWC": CHANNELS_LAST}[layout]
    roles = [argument.role for argument in workload.arguments]
    return [(*(form if role == "data" else PLAIN for role in roles), form)]


@lru_cache(maxsize=8)
def families(
    workload: Workload, side: Side, direct: DirectConvolution | None = None
) -> list[Family]:
    """What computes a convolution on a side, the least estimate first, without what is hopeless.
    `direct` stands in for the usual direct convolution."""
    on, found = placement(side.unit), list[Family]()
    asked = on.target, on.resources
    for name in CONVOLUTIONS:
        spec = direct if direct and name == direct.name else implementation(name)
        if spec.applies(workload, *asked):
            forms = ports(workload, side.layout, spec.port_forms(workload, *asked))
            found.append(family_of(workload, spec, forms, on))
    product = as_product(workload) if side.layout == "NCHW" else None
    if product is not None:
        plain = (PLAIN,) * (len(product.arguments) + 1)
        found.append(family_of(product, implementation(PRODUCT), [plain], on))
    found = [family for family in found if family.spaces]
    least_s = min((family.estimates_s.min() for family in found), default=0.0)
    hopeful = [f for f in found if f.estimates_s.min() <= _HOPELESS * least_s]
    return sorted(hopeful, key=lambda family: float(family.estimates_s.min()))


def family_of(workload: Workload, spec: Any, forms: Sequence[Any], on: Placement) -> Family:
    spaces = (TaskSpace(workload=workload, forms=f, placement=on, spec=spec) for f in forms)
    return Family(workload=workload, spaces=tuple(s for s in spaces if len(s.numbers)))


def as_product(workload: Workload) -> Workload | None:
    """A 1×1 convolution of one image as the product of its weights with the image's channels, each
    a row of pixels; None for any other.

        [1, 64, 56, 56] by [256, 64, 1, 1]  -->  [1, 256, 64] by [1, 64, 3136]
    """
    conv = convolution(workload)
    if (conv.batch, conv.groups, conv.taps, *conv.strides) != (1,) * 5 or conv.padded:
        return None
    arguments = tuple(
        replace(argument, type=replace(argument.type, shape=_rows_of_pixels(argument.type.shape)))
        for argument in workload.arguments
    )
    first, *others = workload.steps
    if first != workload.anchor:
        return None
    product = Step(
        operator="batch_matmul",
        inputs=(conv.weight, conv.data),
        attributes=(("transpose_b", False),),
    )
    return Workload(arguments=arguments, steps=(product, *others))


def _rows_of_pixels(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[1, c, h, w] → [1, c, h·w], weights [o, i, 1, 1] → [1, o, i], biases [o, 1, 1] → [1, o, 1]"""
    if len(shape) == 4 and shape[2:] == (1, 1) and shape[0] > 1:
        return (1, *shape[:2])
    *front, height, width = shape
    return (1, front[-1] if front else 1, height * width)


def in_turn(offered: Sequence[Iterator[int]]) -> Iterator[tuple[int, int]]:
    """The place of a family and the index of a setting, families in turn until all are empty."""
    left = dict(enumerate(offered))
    while left:
        for place, indices in list(left.items()):
            index = next(indices, None)
            if index is None:
                del left[place]
            else:
                yield place, index


def best_first(family: Family, rng: np.random.Generator) -> Iterator[int]:
    """Settings of different register tiles by their estimates, equal ones in any order."""
    estimates_s, seen = family.estimates_s, set[tuple[object, ...]]()
    for index in np.lexsort((rng.random(len(estimates_s)), estimates_s)).tolist():
        tile = family.tile(index)
        if tile not in seen:
            seen.add(tile)
            yield index


def drawn(family: Family, rng: np.random.Generator) -> Iterator[int]:
    """Settings in any order, of those that are estimated well enough."""
    estimates_s = family.estimates_s
    found = np.flatnonzero(estimates_s <= _DRAWN_FROM * estimates_s.min())
    return iter(rng.permutation(found).tolist())


def picked(
    found: Sequence[Family], how: Callable[[Family], Iterator[int]], most: int, known: set[Choice]
) -> list[Choice]:
    """So many candidates that are not `known`, families in turn; they are known afterwards."""
    every = ((found[place], index) for place, index in in_turn([how(f) for f in found]))
    choices = ((family.workload, family.candidate(index)) for family, index in every)
    fresh = list(islice((choice for choice in choices if choice not in known), most))
    known.update(fresh)
    return list(dict.fromkeys(fresh))


def choices_of(workload: Workload, side: Side, times: int = 1) -> list[Choice]:
    """The candidates of a side, or some times as many."""
    rng, known = np.random.default_rng(0), set[Choice]()
    found = families(workload, side)
    best = picked(found, partial(best_first, rng=rng), times * BEST, known)
    most = times * (BEST + DRAWN) - len(best)
    return best + picked(found, partial(drawn, rng=rng), most, known)


def more_choices(workload: Workload, side: Side) -> dict[str, list[Choice]]:
    """What is drawn besides: from the space, and from what a wider one has in addition."""
    rng = np.random.default_rng(1)
    usual, wider = families(workload, side), families(workload, side, WideDirect())
    spaces = {space.forms: space.part.knobs for family in usual for space in family.direct}

    def outside(family: Family) -> Iterator[int]:
        for index in drawn(family, rng):
            space, number = family.located(index)
            knobs, settings = spaces[space.forms], space.part.knobs.settings(number)
            known = knobs.number(settings)
            if known is None or not knobs.valid(known):
                yield index

    return {
        "drawn": picked(usual, partial(drawn, rng=rng), MORE, set()),
        "outside": picked([f for f in wider if f.direct], outside, MORE, set()),
    }


def fitting_tiles(unit: str) -> list[RegisterTile]:
    """The tiles whose sums stay in the registers of a unit."""
    registers = placement(unit).target.vector_registers
    tiles = (RegisterTile(rows, vectors) for vectors in range(1, 9) for rows in range(1, 33))
    return [tile for tile in tiles if tile.fits(registers)]


def tile_loss(workload: Workload, unit: str) -> float:
    """What the best register tile of the direct convolution's space loses by the model, idle parts
    of tiles included, against the best one that fits the registers."""
    register = placement(unit).target.lanes(workload.computed_in)
    losses = [np.empty(0)]
    for space in (s for f in families(workload, Side(unit, "NCHWc")) for s in f.direct):
        settings = space.part.knobs.columns(space.numbers)
        waste = plane_tiles(convolution(workload), settings)[2]
        losses.append(waste * DirectConvolution().tile(settings, register).slowdown)
    best = min(float(tile.slowdown) for tile in fitting_tiles(unit))
    return float(np.concatenate(losses).min(initial=np.inf)) / best


def described(workload: Workload) -> dict[str, Any]:
    """What the tables show of a convolution."""
    conv = convolution(workload)
    return {
        "in": [conv.in_channels, conv.in_height, conv.in_width],
        "out": [conv.out_channels, conv.out_height, conv.out_width],
        "kernel": list(conv.kernel),
        "strides": list(conv.strides),
        "flop": conv.flop,
    }

"""Steps of modelled time along the sizes of an operator, and what explains them.

A step is the ratio of the times per operation at two neighbouring sizes. Another tile is no
explanation of its own: the setting of the cheaper size is taken along to the dearer one, and what
it has more of there must be the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.core.forms import IMAGE_LAYOUTS
from tilewright.core.records import Candidate, Placement, Settings
from tilewright.graph.workload import Workload
from tilewright.insight.single_operators import main_task
from tilewright.kernels.estimates import facts
from tilewright.kernels.registry import applicable, implementation, ports_in
from tilewright.kernels.spaces import default_candidate
from tilewright.models import ModelOptions

LARGEST = 1.15
"""Of steps that need no explanation."""
_ROUNDED = 1e-6


@dataclass(frozen=True, kw_only=True)
class Point:
    """A setting at a size, with all that counts for each operation of that size: `seconds`; the
    work of the multiprocessor that has the most, `busiest`, relative to an even share of what is
    needed; `cache_bytes` and `memory_bytes`, from and to the second-level cache and device memory.
    """

    size: str
    name: str
    tile: str
    seconds: float
    total_s: float
    busiest: float
    cache_bytes: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class Sized:
    """An operator at one size, with images in a layout."""

    size: str
    workload: Workload
    layout: str
    placement: Placement

    def best(self) -> Candidate:
        """The default setting."""
        forms = ports_in(
            IMAGE_LAYOUTS[self.layout],
            *(self.workload, self.placement.target, self.placement.resources),
        )
        assert forms is not None
        return default_candidate(self.workload, forms, self.placement)[0]

    def point(self, candidate: Candidate) -> Point | None:
        """What the model says of a setting; None where it is none of this size."""
        target, resources = self.placement.target, self.placement.resources
        spec, settings = implementation(candidate.implementation), dict(candidate.settings)
        if spec not in applicable(self.workload, target, resources):
            return None
        if candidate.forms not in spec.port_forms(self.workload, target, resources):
            return None
        given = (self.workload, target, resources, candidate.forms)
        offered = {knob.name: knob.values for knob in spec.knobs(*given)}
        known = all(value in offered[name] for name, value in settings.items())
        if not (known and spec.valid(*given, settings)):
            return None
        told = {name: float(values[0]) for name, values in facts(spec, *given, [settings]).items()}
        flop = self.workload.flop
        share = told["parallel_extent"] / target.cores
        return Point(
            size=self.size,
            name=spec.name,
            tile=_tile(settings),
            seconds=told["estimate_s"] / flop,
            total_s=told["estimate_s"],
            busiest=told["most_blocks"] / share * told.get("waste", 1.0),
            cache_bytes=told["cache_traffic_bytes"] / flop,
            memory_bytes=told["memory_traffic_bytes"] / flop,
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """From a cheaper size to a dearer neighbour: the default settings of both, and that of the
    cheaper one at the dearer size, None where it is none of its settings."""

    cheap: Point
    dear: Point
    carried: Point | None

    @property
    def ratio(self) -> float:
        """Of the times per operation."""
        return self.dear.seconds / self.cheap.seconds

    @property
    def waves(self) -> float:
        """How much more work the busiest multiprocessor has, of each operation."""
        return self._there.busiest / self.cheap.busiest

    @property
    def bytes(self) -> float:
        """How many more bytes an operation moves, of the memory of which it is more."""
        there = self._there
        return max(
            there.cache_bytes / self.cheap.cache_bytes,
            there.memory_bytes / self.cheap.memory_bytes,
        )

    @property
    def fault(self) -> str:
        """Why the step ought not to be; empty where it is small or explained: waves and bytes are
        that much more, of the same setting, or of the other one where there is no choice."""
        if self.ratio <= LARGEST:
            return ""
        carried = self.carried
        if carried is not None and carried.seconds < self.dear.seconds * (1 - _ROUNDED):
            return "the setting of the neighbour is faster and was not taken"
        if max(1.0, self.waves) * max(1.0, self.bytes) < self.ratio * (1 - _ROUNDED):
            return "neither waves nor bytes"
        return ""

    @property
    def _there(self) -> Point:
        return self.dear if self.carried is None else self.carried


def along(texts: dict[str, str], layout: str, on: Placement) -> tuple[list[Point], list[Step]]:
    """The default settings of an operator's sizes, by their names, and the steps between them."""
    sized = [_sized(text, layout, on, size) for size, text in texts.items()]
    best = [each.best() for each in sized]
    points = [_known(each.point(candidate)) for each, candidate in zip(sized, best, strict=True)]
    return points, steps_of(sized, best, points)


def modelled(text: str, on: Placement, layout: str = "NCHW") -> Point:
    """The default setting of an operator with images in a layout."""
    sized = _sized(text, layout, on)
    return _known(sized.point(sized.best()))


def steps_of(
    sized: Sequence[Sized], best: Sequence[Candidate], points: Sequence[Point]
) -> list[Step]:
    """The steps between neighbours with these settings, and what is said of those."""
    steps: list[Step] = []
    for here, there in pairwise(range(len(sized))):
        if points[here].seconds > points[there].seconds:
            here, there = there, here
        carried = sized[there].point(best[here])
        steps.append(Step(cheap=points[here], dear=points[there], carried=carried))
    return steps


def largest_step(costs: Sequence[float]) -> float:
    """Of times per operation, from one size to the next."""
    return max(max(b / a, a / b) for a, b in pairwise(costs))


def told(step: Step) -> list[str]:
    """Cells of a table about a step: sizes, tiles, and how much more there is of what."""
    return [
        f"{step.cheap.size} → {step.dear.size}",
        step.cheap.tile,
        step.dear.tile,
        f"{step.ratio:.3f}",
        f"{step.waves:.3f}",
        f"{step.bytes:.3f}",
        step.fault or ("small" if step.ratio <= LARGEST else "explained"),
    ]


HEADINGS = ("sizes", "tile", "tile there", "step", "waves", "bytes", "verdict")
"""Of `told`; waves and bytes are those of the first tile at both sizes."""


def _sized(text: str, layout: str, on: Placement, size: str = "") -> Sized:
    workload = main_task(text, ModelOptions(), on).workload
    return Sized(size=size, workload=workload, layout=layout, placement=on)


def _tile(settings: Settings) -> str:
    """Results of a block, of a thread where it has a tile, and the depth of a step; of a direct
    convolution rows by columns by channels."""
    if "deep" in settings:
        of_thread = [int(settings[name]) for name in ("rows", "columns", "channels")]
        threads = [int(settings[name]) for name in ("down", "across", "deep")]
        of_block = [one * many for one, many in zip(of_thread, threads, strict=True)]
        apart = (" apart", "", " exchanged")[settings["beside"]]
        return ", ".join("×".join(map(str, each)) for each in (of_block, of_thread)) + apart
    texts: Sequence[str] = [
        f"{settings[f'{of}_rows']}×{settings[f'{of}_columns']}"
        for of in ("tile", "thread")
        if f"{of}_rows" in settings
    ]
    depth = [f"{settings['tile_depth']} deep"] if "tile_depth" in settings else []
    return ", ".join([*texts, *depth]) or ", ".join(map(str, settings.values()))


def _known(point: Point | None) -> Point:
    assert point is not None, "a default setting is one of its space"
    return point

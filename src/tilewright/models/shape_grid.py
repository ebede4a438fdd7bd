"""Several shapes of one model: `--batch 1,4,16 --shape tokens=32,64` are six."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product

from tilewright.core.arguments import counts_of, named_of
from tilewright.core.errors import ModelError, TargetError, UsageError, quoted
from tilewright.models.input_shapes import axis_sizes
from tilewright.models.loaded import ModelOptions
from tilewright.models.loading import open_axes

BATCH = "batch"
"""The name of the axis that `--batch` is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeGrid:
    """Sizes of the batch and of named axes of a model, each combination of which is a shape.

    Along axes in `pad`, and always along the batch, arrays may be filled up with zeros to the next
    larger shape. Raises UsageError for what is no size, for sizes that occur twice, for axes to pad
    that do not have several sizes, and where there is only one shape.
    """

    batch: tuple[int, ...] = ()
    axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    pad: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", counts_of(self.batch, "batch", 1))
        axes = {
            name: counts_of(sizes, f"the sizes of {quoted(name)}", 1)
            for name, sizes in named_of(self.axes, "axes").items()
        }
        object.__setattr__(self, "axes", axes)
        if BATCH in axes and self.batch:
            raise UsageError("the batch has sizes twice: as the batch and as an axis of that name")
        for name, sizes in (*axes.items(), *self.sizes.items()):
            if not sizes or len({*sizes}) < len(sizes):
                raise UsageError(f"{name} has no sizes, or one twice: {list(sizes)}")
        if not self.sizes:
            raise UsageError("several shapes are asked for, and one is given")
        for name in self.pad:
            if name not in self.sizes:
                raise UsageError(
                    f"{quoted(name)} is to be padded and is no axis with several sizes",
                    hint="These are: " + ", ".join(map(quoted, self.sizes)) + ".",
                )

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of each axis that has several, in ascending order."""
        every = {BATCH: self.batch, **self.axes}
        return {name: tuple(sorted(sizes)) for name, sizes in every.items() if len(sizes) > 1}

    @property
    def padded(self) -> tuple[str, ...]:
        """The axes along which arrays may be filled up."""
        return tuple(name for name in self.sizes if name in (BATCH, *self.pad))

    def shapes(self, options: ModelOptions) -> list[tuple[dict[str, int], ModelOptions]]:
        """The sizes of each shape, small ones first, and the model's options for it."""
        found: list[tuple[dict[str, int], ModelOptions]] = []
        for combination in product(*self.sizes.values()):
            chosen = dict(zip(self.sizes, combination, strict=True))
            batch = chosen.get(BATCH, *self.batch[:1]) if self.batch else options.batch
            named = {name: (chosen.get(name, sizes[0]),) for name, sizes in self.axes.items()}
            shapes = {**options.shapes, **named}
            found.append((chosen, replace(options, batch=batch, shapes=shapes)))
        return found


def axes_among(argument: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Those of some shapes by name that are several sizes of a named axis of the model: of a name
    that is no input's. What is wrong with a model is said when it is loaded."""
    listed = {name: sizes for name, sizes in shapes.items() if len(sizes) > 1}
    with suppress(UsageError, ModelError, TargetError):
        return axis_sizes(open_axes(argument), listed) if listed else {}
    return {}

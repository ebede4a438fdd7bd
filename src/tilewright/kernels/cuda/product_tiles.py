"""How products of matrices are cut into tiles of blocks and of threads on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import gcd, prod
from typing import Any, Self

import numpy as np

from tilewright.core.forms import Form
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import anchored
from tilewright.kernels.codes import CODES
from tilewright.kernels.columns import Bools
from tilewright.kernels.conv2d_transposed import TransposedConvolution, transposed_convolution
from tilewright.kernels.convolution import Convolution, convolution
from tilewright.kernels.cuda.images import channels_last, packed_forms

VECTOR = 4
"""Elements of the widest access."""
WARP = 32
SINGLE_BYTES = 4
RUN = 8
"""Elements of a line along the depth that neighbouring lanes copy, a sector of singles; the next
lanes go on with the next line, so that what they write across meets in no bank."""
_SIDES = 4
"""Of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A matrix that is multiplied: the value that it is made of, whether its elements lie side by
    side along the depth, how many of them are read at once, and how many there are in a line;
    whether those are channels of one tap, rather than taps of one channel. An element, or a vector
    of them, takes `loads`, each of which gets `load_bytes` of it, 0 for all."""

    value: int
    along_depth: bool
    vector: int
    line: int
    of_channels: bool = False
    loads: int = 1
    load_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`batch` products of `rows` × `depth` by `depth` × `columns`.

    `along_rows` says that results lie side by side along rows, as those of images do; the axis that
    they lie along is the `fast` one, the other the `slow` one. Up to `vector` of them are written
    at once. There are `results`: phases of a transposed convolution may have fewer than rows.
    `comparisons` are those of a place of the left operand with the borders of an image, `taps` how
    many of them the depth has of each of its `channels`, `stride` how far apart in memory what lies
    side by side along rows is. With `taps_outside` a depth has all channels of a tap, then those of
    the next one. `phased` says that results of a matrix do not lie side by side. A sum has `terms`,
    0 where each element of the depth is one of them.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    left: Operand
    right: Operand
    along_rows: bool
    vector: int
    results: int
    comparisons: int = 0
    taps: int = 1
    stride: int = 1
    taps_outside: bool = False
    phased: bool = False
    terms: int = 0

    @property
    def channels(self) -> int:
        """Channels of the depth."""
        return self.depth // self.taps

    @property
    def fast(self) -> int:
        """Extent of the axis that results lie side by side along."""
        return self.rows if self.along_rows else self.columns

    @property
    def slow(self) -> int:
        """Extent of the other axis."""
        return self.columns if self.along_rows else self.rows

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """That of the fast axis, and that of the slow one."""
        return (self.left, self.right) if self.along_rows else (self.right, self.left)


@lru_cache(maxsize=4096)
def product(workload: Workload, forms: tuple[Form, ...] = ()) -> Product:
    """Read the extents of a workload whose anchor is a product; without `forms` of its ports all of
    them are plain."""
    return READERS[anchored(workload)[0].operator](workload, forms)


def _dense(workload: Workload, _forms: tuple[Form, ...]) -> Product:
    step, (x, w), result = anchored(workload)
    return Product(
        batch=1,
        rows=prod(x.shape[:-1]),
        columns=w.shape[1],
        depth=w.shape[0],
        left=_operand(workload, step.inputs[0], x.shape[-1], along_depth=True),
        right=_operand(workload, step.inputs[1], w.shape[1], along_depth=False),
        along_rows=False,
        vector=_written(workload, w.shape[1]),
        results=prod(result.shape),
    )


def _batch_matmul(workload: Workload, _forms: tuple[Form, ...]) -> Product:
    step, (x, w), result = anchored(workload)
    *leading, rows, columns = result.shape
    turned = bool(step.attribute("transpose_b"))
    return Product(
        batch=prod(leading),
        rows=rows,
        columns=columns,
        depth=x.shape[-1],
        left=_operand(workload, step.inputs[0], x.shape[-1], along_depth=True),
        right=_operand(workload, step.inputs[1], w.shape[-1], along_depth=turned),
        along_rows=False,
        vector=_written(workload, columns),
        results=prod(result.shape),
    )


def _conv2d(workload: Workload, forms: tuple[Form, ...]) -> Product:
    conv = convolution(workload)
    read_last, written_last = channels_last(workload, forms)
    return Product(
        batch=conv.groups,
        rows=conv.batch * conv.pixels,
        columns=conv.group_out,
        depth=conv.summed,
        left=_image(workload, conv, last=read_last),
        right=_filters(workload, conv, forms, taps_outside=read_last),
        along_rows=not written_last,
        vector=_written(workload, conv.group_out if written_last else conv.pixels),
        results=conv.batch * conv.out_channels * conv.pixels,
        comparisons=_borders(conv),
        taps=conv.taps,
        stride=1 if read_last else conv.strides[1],
        taps_outside=read_last,
    )


def _image(workload: Workload, conv: Convolution, *, last: bool) -> Operand:
    """The image of a convolution: lines of its rows, or with channels `last` of the channels of a
    tap, which the next tap across goes on with."""
    if last:
        together = conv.groups == 1 and conv.dilation[1] == 1
        line = conv.group_in * (conv.kernel[1] if together else 1)
        found = _operand(workload, conv.data, conv.group_in, along_depth=True, line=line)
        return replace(found, of_channels=True)
    direct = conv.taps == 1 and conv.strides == (1, 1) and not conv.padded
    extent, line = (conv.pixels, conv.pixels) if direct else (1, conv.out_width)
    return _operand(workload, conv.data, extent, along_depth=False, line=line)


def _filters(
    workload: Workload, conv: Convolution, forms: tuple[Form, ...], *, taps_outside: bool
) -> Operand:
    """The filters: packed, lines of output channels; else lines of a filter."""
    if conv.weight in packed_forms(workload, forms):
        return _operand(workload, conv.weight, conv.group_out, along_depth=False)
    apart = taps_outside and conv.taps > 1
    extent = 1 if apart else conv.summed
    return _operand(workload, conv.weight, extent, along_depth=True)


def _borders(conv: Convolution) -> int:
    """Sides of the image at which some place of the result reads beyond it."""
    ends = [
        (extent - 1) * stride + (kernel - 1) * dilation - before >= image
        for extent, stride, kernel, dilation, before, image in zip(
            (conv.out_height, conv.out_width),
            conv.strides,
            conv.kernel,
            conv.dilation,
            conv.padding[:2],
            (conv.in_height, conv.in_width),
            strict=True,
        )
    ]
    return sum(before > 0 for before in conv.padding[:2]) + sum(ends)


def _conv2d_transpose(workload: Workload, forms: tuple[Form, ...]) -> Product:
    conv, (_, _, result) = transposed_convolution(workload), anchored(workload)
    read_last, written_last = channels_last(workload, forms)
    phases = conv.rows.count * conv.columns.count
    pixels = conv.rows.positions * conv.columns.positions
    beside = 1 if phases > 1 else pixels
    return Product(
        batch=conv.groups * phases,
        rows=conv.batch * pixels,
        columns=conv.group_out,
        depth=conv.summed,
        left=_gathered_image(workload, conv, last=read_last),
        right=_gathered_filters(workload, conv, forms, taps_outside=read_last),
        along_rows=not written_last,
        vector=_written(workload, conv.group_out if written_last else beside),
        results=prod(result.shape),
        comparisons=_SIDES,
        taps=conv.rows.taps * conv.columns.taps,
        phased=True,
        taps_outside=read_last,
    )


def _gathered_image(workload: Workload, conv: TransposedConvolution, *, last: bool) -> Operand:
    """The image of a transposed convolution: single pixels of its rows, or with channels `last`
    those of a tap; the next tap across lies before it."""
    if last:
        found = _operand(workload, conv.data, conv.group_in, along_depth=True)
        return replace(found, of_channels=True)
    return _operand(workload, conv.data, 1, along_depth=False, line=conv.columns.positions)


def _gathered_filters(
    workload: Workload, conv: TransposedConvolution, forms: tuple[Form, ...], *, taps_outside: bool
) -> Operand:
    """Its filters: packed, lines of output channels; else one by one, along the taps of a phase
    where a depth has them side by side."""
    if conv.weight in packed_forms(workload, forms):
        return _operand(workload, conv.weight, conv.group_out, along_depth=False)
    along = conv.rows.taps * conv.columns.taps > 1 and not taps_outside
    line = 1 if taps_outside else conv.columns.taps
    return _operand(workload, conv.weight, 1, along_depth=along, line=line)


READERS = {
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
}


def _written(workload: Workload, extent: int) -> int:
    """Results that are written at once, of lines of `extent`: singles, and what is made of sums of
    codes, but for truth values, a vector of which TVM writes with two bytes each."""
    of_codes = anchored(workload)[1][0].dtype in CODES and workload.result.dtype != "bool"
    together = of_codes or {kind.dtype for kind in workload.types} == {"float32"}
    return gcd(extent, VECTOR) if together else 1


def _operand(
    workload: Workload, value: int, extent: int, *, along_depth: bool, line: int = 0
) -> Operand:
    """An operand whose elements lie side by side in lines of `extent`; what steps before the anchor
    move is read one by one, and so is what is no single."""
    kind = workload.types[value]
    wide = kind.dtype == "float32" and _unmoved(workload, value)
    vector = gcd(extent, VECTOR) if wide else 1
    return Operand(value=value, along_depth=along_depth, vector=vector, line=line or extent)


def _unmoved(workload: Workload, value: int) -> bool:
    """Whether a value is an argument, or made elementwise of arguments as they lie in memory."""
    step = value - len(workload.arguments)
    if step < 0:
        return workload.types[value].dtype == "float32"
    made = workload.steps[step]
    return OPERATORS[made.operator].elementwise and all(
        _unmoved(workload, each) for each in made.inputs
    )


def behind(workload: Workload) -> list[int]:
    """The values that depend on the anchor's, in order."""
    first, found = len(workload.arguments), list[int]()
    reached = {first + (workload.anchor_index or 0)}
    for value, step in enumerate(workload.steps, start=first):
        if reached.intersection(step.inputs):
            reached.add(value)
            found.append(value)
    return found


def is_costly(workload: Workload, value: int) -> bool:
    """Whether a step is a function, or rounded by many instructions."""
    step = workload.steps[value - len(workload.arguments)]
    rounded = workload.types[value].dtype == "bfloat16"
    return rounded or OPERATORS[step.operator].transcendental > 0


def held_behind(workload: Workload) -> list[int]:
    """What a kernel holds in registers on the way from a product to the result."""
    return [value for value in behind(workload)[:-1] if is_costly(workload, value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How a product is cut; numbers of one setting, or columns of many.

    A block computes `fast` by `slow` results, each of its threads `thread_fast` by `thread_slow`,
    in steps of `depth`: of whole filters one after the other, or, `by_taps` (0 or 1), of one tap of
    so many channels, then their next tap. Lanes of a warp lie `lanes_fast` by `lanes_slow`.
    """

    fast: Any
    slow: Any
    thread_fast: Any
    thread_slow: Any
    depth: Any
    stages: Any
    split: Any
    by_taps: Any

    @property
    def threads_fast(self) -> Any:
        """Threads of a block along the fast axis."""
        return self.fast // self.thread_fast

    @property
    def threads_slow(self) -> Any:
        """Threads of a block along the slow axis."""
        return self.slow // self.thread_slow

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return self.threads_fast * self.threads_slow

    @property
    def lanes_fast(self) -> Any:
        """Lanes of a warp along the fast axis: eight, so that a warp reads lines of both tiles and
        writes whole sectors, unless one of the axes is too short."""
        least = np.maximum(8, WARP // np.minimum(WARP, self.threads_slow))
        return np.minimum(self.threads_fast, least)

    @property
    def lanes_slow(self) -> Any:
        """Lanes of a warp along the slow axis."""
        return np.minimum(self.threads_slow, WARP // self.lanes_fast)

    @property
    def whole(self) -> Any:
        """Whether there are threads along both axes."""
        return (self.fast >= self.thread_fast) & (self.slow >= self.thread_slow)

    @property
    def widths(self) -> tuple[Any, Any]:
        """Neighbouring results that a thread has along either axis."""
        return np.minimum(VECTOR, self.thread_fast), np.minimum(VECTOR, self.thread_slow)

    @property
    def ahead(self) -> Any:
        """Steps whose tiles are on their way while one is multiplied."""
        return self.stages - 1

    @property
    def surplus(self) -> Any:
        """Steps whose tiles a block copies at most without multiplying them."""
        return 2 * (self.stages - 1)

    @property
    def exchanges(self) -> Any:
        """In how many turns lanes exchange sums before they are written."""
        return 0

    def stored(self, product: Product) -> tuple[Any, Any, Any]:
        """Of a warp that writes: lanes that share a line, how far apart in it they begin, and
        results that each writes at once."""
        width = self.widths[0]
        return self.lanes_fast, width, np.minimum(width, product.vector)

    def pitches(self, product: Product) -> tuple[Any, Any]:
        """Elements from one depth to the next of either tile in shared memory. What comes along the
        depth is written across, and gets some more so that it does not meet in one bank."""
        fast, slow = (VECTOR * each.along_depth for each in product.operands)
        return self.fast + fast, self.slow + slow

    def shared_bytes(self, product: Product) -> Any:
        """Shared memory of a block."""
        return SINGLE_BYTES * sum(self.pitches(product)) * self.depth * self.stages

    def all_steps(self, product: Product) -> Any:
        """Steps along the whole depth."""
        filters = -(-product.depth // self.depth)
        taps = -(-product.channels // self.depth) * product.taps
        return self.by_taps * taps + (1 - self.by_taps) * filters

    def steps(self, product: Product) -> Any:
        """Steps of each block along its part of the depth."""
        return -(-self.all_steps(product) // self.split)

    def overruns(self, product: Product) -> Any:
        """Whether a block copies anything beyond the depth."""
        count = self.steps(product) * self.split + self.surplus
        of_taps = (product.channels % self.depth > 0) | (count > self.all_steps(product))
        of_filters = count * self.depth > product.depth
        return (self.by_taps & of_taps) | ((1 - self.by_taps) & of_filters)

    def blocks(self, product: Product) -> Any:
        """Blocks of the launch."""
        tiles = -(-product.fast // self.fast) * -(-product.slow // self.slow)
        return product.batch * tiles * self.split

    def where(self, chosen: Bools) -> Self:
        """The columns with ones in all rows but the chosen ones, so that every number is defined
        there."""
        columns = {
            each.name: np.where(chosen, getattr(self, each.name), 1) for each in fields(self)
        }
        return replace(self, **columns)

    def vector(self, operand: Operand, extent: Any) -> Any:
        """Elements of an operand that are read at once, of a tile of that extent."""
        if operand.along_depth:
            single = self.by_taps & (not operand.of_channels)
            return np.where(single, 1, np.minimum(operand.vector, self.depth))
        return np.minimum(operand.vector, extent)

    def vectors(self, product: Product) -> tuple[Any, Any]:
        """Elements of either operand that are read at once."""
        fast, slow = product.operands
        return self.vector(fast, self.fast), self.vector(slow, self.slow)

    def copied(self, product: Product) -> tuple[Any, Any]:
        """Accesses by which each thread copies a tile of either operand."""
        fast, slow = (
            -(-self.depth * extent // (vector * self.threads))
            for extent, vector in zip((self.fast, self.slow), self.vectors(product), strict=True)
        )
        return fast, slow

    def fetched(self, product: Product) -> tuple[Any, Any]:
        """Elements of either tile that a thread copies in a step."""
        fast, slow = (
            count * vector
            for count, vector in zip(self.copied(product), self.vectors(product), strict=True)
        )
        return fast, slow

    def in_registers(self, product: Product) -> Any:
        """Elements of both tiles that a thread has in registers while it copies."""
        return sum(self.fetched(product))


def tiles_of(product: Product, setting: Callable[[str], Any], kind: type[Tiles] = Tiles) -> Tiles:
    """The tiles of a setting; `setting` gives the value, or the column, of a knob."""
    rows = (setting("tile_rows"), setting("thread_rows"))
    columns = (setting("tile_columns"), setting("thread_columns"))
    fast, slow = (rows, columns) if product.along_rows else (columns, rows)
    return kind(
        fast=fast[0],
        slow=slow[0],
        thread_fast=fast[1],
        thread_slow=slow[1],
        depth=setting("tile_depth"),
        stages=setting("stages"),
        split=setting("split"),
        by_taps=setting("by_taps"),
    )

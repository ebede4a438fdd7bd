"""Pooling and depthwise convolution on GPUs: each plane has a window of its own.

A thread computes a small rectangle of results, whose inputs it reads row by row into registers, so
that neighbouring windows share them. Threads are dealt out over rectangles of all planes; or, with
the input `staged`, a block copies what its rectangles need into shared memory first. Where channels
are innermost, neighbouring threads have neighbouring channels, a few of each, of one rectangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, anchored
from tilewright.kernels.columns import Bools, Floats, Numbers, column, least, whole
from tilewright.kernels.cuda.accesses import distinct, turns_of_banks
from tilewright.kernels.cuda.base import bytes_of, has_async_copies, is_from_argument
from tilewright.kernels.cuda.composing import MOST_ELEMENTS, elementwise_after
from tilewright.kernels.cuda.images import ImageKernels, alike, channels_last, image_ports
from tilewright.kernels.ports import Ports

POOLING = frozenset({"max_pool2d", "avg_pool2d"})
_WARP, _LINE_BYTES, _WORD_BYTES = 32, 128, 4
_SPELT_OUT = 64
"""Taps of the largest window whose loops are spelt out."""
_MOST_PRODUCTS = 400
"""Of a thread, spelt out."""
_BASE_REGISTERS, _MOST_REGISTERS = 28.0, 128.0
_INSTRUCTIONS_OF_A_LOAD, _INSTRUCTIONS_OF_A_THREAD = 4.0, 40.0
"""With the comparisons of a padded border, and to find its place."""
_INSTRUCTIONS_OF_A_PLACE = 46.0
"""More of an element that is copied asynchronously: plane, row and column are found by divisions,
50 instructions of PTX in all. Where each is waited for, they are made meanwhile."""
_STEPS_OF_A_BARRIER = 0.2
_MOST_LANES = 4
_WARPS_LOOKED_AT = 8
ASYNCHRONOUS = 2
"""How the input is `staged` where copies wait together."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is computed: `planes` of `height` by `width` results, `channels` of an image, each from
    the plane of the input (`in_height` by `in_width`) that `multiplier` of them share. Pairs are
    (rows, columns); the padding is that above and to the left. Channels may lie `last`."""

    planes: int
    channels: int
    last: bool
    height: int
    width: int
    multiplier: int
    in_height: int
    in_width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    weighted: bool

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def spelt_out(self) -> bool:
        """Whether the loops over a window are unrolled."""
        return self.taps <= _SPELT_OUT

    def span(self, axis: int, results: Any) -> Any:
        """Inputs along an axis from the first to the last that so many results read."""
        taps = (self.kernel[axis] - 1) * self.dilation[axis]
        return (results - 1) * self.strides[axis] + taps + 1


@dataclass(frozen=True, slots=True)
class Rectangles:
    """Who computes what: a thread `rows` by `columns` results, of `lanes` channels where those are
    last. A block of a staged kernel has `planes` times `down` by `across` of these rectangles, one
    per thread. Numbers of one setting, or columns of many."""

    window: Window
    threads: Any
    rows: Any
    columns: Any
    lanes: Any = 1

    @property
    def items(self) -> tuple[Any, ...]:
        """What threads are dealt out over, the last axis the fastest."""
        window = self.window
        if not window.last:
            return (window.planes, *self.per_plane)
        images, groups = window.planes // window.channels, window.channels // self.lanes
        return (images, *self.per_plane, groups)

    @property
    def per_plane(self) -> tuple[Any, Any]:
        """Rectangles of a plane, down and across."""
        return -(-self.window.height // self.rows), -(-self.window.width // self.columns)

    @property
    def across(self) -> Any:
        """Rectangles side by side in a block."""
        return least(self.per_plane[1], _WARP)

    @property
    def down(self) -> Any:
        """Rectangles one below the other in a block."""
        return least(self.per_plane[0], self.threads // self.across)

    @property
    def planes(self) -> Any:
        """Planes of a block."""
        return least(self.window.planes, self.threads // (self.across * self.down))

    @property
    def tiles(self) -> tuple[Any, Any, Any]:
        """Blocks along planes, rows and columns."""
        down, across = self.per_plane
        planes = -(-self.window.planes // self.planes)
        return planes, -(-down // self.down), -(-across // self.across)

    @property
    def staged(self) -> tuple[Any, Any, Any]:
        """The input of a block, as it is staged: planes, rows, columns."""
        window = self.window
        down, across = window.span(0, self.down * self.rows), window.span(1, self.across_columns)
        return self.planes, down, across

    @property
    def across_columns(self) -> Any:
        """Columns of results of a block."""
        return self.across * self.columns


@lru_cache(maxsize=1024)
def window_of(workload: Workload, *, last: bool = False) -> Window:
    """The window of the anchor, with its channels before rows and columns, or `last`."""
    step, (data, *others), result = anchored(workload)
    weighted = bool(others)
    kernel = others[0].shape[2:] if weighted else step.integers("kernel")
    top, left = step.integers("padding")[:2]
    channels, in_channels = result.shape[1], data.shape[1]
    strides, dilation = step.integers("strides"), step.integers("dilation")
    return Window(
        planes=result.shape[0] * channels,
        channels=channels,
        last=last,
        height=result.shape[2],
        width=result.shape[3],
        multiplier=channels // in_channels,
        in_height=data.shape[2],
        in_width=data.shape[3],
        kernel=(kernel[0], kernel[1]),
        strides=(strides[0], strides[1]),
        dilation=(dilation[0], dilation[1]),
        padding=(top, left),
        weighted=weighted,
    )


def rectangles_of(
    workload: Workload, forms: Ports, settings: Settings | Sequence[Settings]
) -> Rectangles:
    """The rectangles of a setting, or of many."""
    threads, rows, columns = (whole(settings, name) for name in ("threads", "rows", "columns"))
    last = True in channels_last(workload, forms)
    lanes = whole(settings, "channels") if last else 1
    return Rectangles(window_of(workload, last=last), threads, rows, columns, lanes)


class WindowKernels(ImageKernels):
    """Spec of window kernels."""

    name = "cuda_window"
    anchors = POOLING | {"conv2d"}
    element_types = SINGLE | {"float16", "float64", "int32", "int8", "uint8"}

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Pooling, averages of floating point only, and convolution of each channel by itself;
        nothing after it but elementwise steps."""
        if workload.anchor is None:
            return False
        step, (data, *weights), result = anchored(workload)
        floating = element_type(data.dtype).is_float
        if data.dtype not in self.element_types or not (floating or step.operator == "max_pool2d"):
            return False
        if weights:
            alone = weights[0].shape[1] == 1 and step.integer("groups") == data.shape[1]
            if not (alone and floating):
                return False
        fits = 0 < data.elements < MOST_ELEMENTS and 0 < result.elements < MOST_ELEMENTS
        return fits and elementwise_after(workload)

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """The image and the result row by row, or both with their channels last."""
        return tuple(forms for forms in image_ports(workload) if alike(workload, forms))

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`threads` of a block, `rows` and `columns` of results of a thread; whether a block's
        input is `staged` in shared memory, 1 element after element, 2 by copies that wait together,
        or where channels are last, how many `channels` a thread has."""
        last = True in channels_last(workload, forms)
        asynchronous = has_async_copies(target) and _can_be_asynchronous(workload)
        staged = Knob(name="staged", values=(0, 1, ASYNCHRONOUS) if asynchronous else (0, 1))
        channels = Knob(name="channels", values=_lanes(workload), kind="split")
        return (
            Knob(name="threads", values=(64, 128, 256), kind="split"),
            Knob(name="rows", values=(1, 2, 4, 7), kind="split"),
            Knob(name="columns", values=(1, 2, 4, 7), kind="split"),
            channels if last else staged,
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Rectangles that are not larger than the result, registers and shared memory that fit, and
        a text that is not too long; windows that are not spelt out have one result a thread. An
        image that is read in one form and written in the other is left to other kernels."""
        shape = rectangles_of(workload, forms, settings)
        window, results = shape.window, shape.rows * shape.columns * shape.lanes
        fits = ((results == 1) | window.spelt_out) & alike(workload, forms)
        fits &= (shape.rows <= window.height) & (shape.columns <= window.width)
        fits &= results * window.taps <= max(_MOST_PRODUCTS, window.taps)
        fits &= _registers(workload, shape) <= _MOST_REGISTERS
        return fits & (
            _staged(shape, settings) * _staged_bytes(workload, shape)
            <= target.limits.static_shared_bytes
        )

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """What a thread loads and computes; lines that a warp's loads take, in the first-level
        cache or in banks of shared memory; the input of a block with what neighbours read again.

        Each element that a thread copies to shared memory is waited for: on an H100 staged kernels
        take as long as that says, up to ten times as long as others. Asynchronous copies are waited
        for once.
        """
        shape = rectangles_of(workload, forms, settings)
        window, threads = shape.window, column(settings, "threads")
        staged, loads = _staged(shape, settings), _loads(shape)
        asynchronous = _asynchronous(shape, settings)
        count, copied, lines, moved = _of_a_block(shape, staged)
        results = shape.rows * shape.columns * shape.lanes
        size = bytes_of(anchored(workload)[1][0].dtype)
        weights = float(window.taps if window.weighted else 0)
        filters = np.minimum(threads * shape.lanes, window.channels) if window.last else 1.0
        products = results * window.taps
        issued = loads + weights + _INSTRUCTIONS_OF_A_LOAD * (loads * (1 - staged) + copied)
        issued = issued + _INSTRUCTIONS_OF_A_PLACE * asynchronous * copied
        warps = threads / _WARP
        written = results * threads * bytes_of(workload.result.dtype)
        serial = 0.0 if window.spelt_out else window.taps / 4.0
        shared = staged * _staged_bytes(workload, shape)
        blocks = Blocks(
            count=count,
            threads=threads,
            registers=_registers(workload, shape),
            shared_bytes=shared,
            operations=2.0 * products * threads,
            instructions=warps * (issued + products + results + _INSTRUCTIONS_OF_A_THREAD),
            shared_traffic_bytes=warps * (loads * lines + copied * staged) * _LINE_BYTES,
            traffic_bytes=moved * size + written + 4.0 * weights * filters,
            steps=np.where(
                staged,
                np.where(asynchronous, 1.0, np.ceil(copied)) + _STEPS_OF_A_BARRIER,
                1.0 + serial,
            ),
            memory_bytes=float(workload.bytes),
        )
        return Demand(
            pieces=count,
            blocks=(blocks,),
            details={
                "elements_per_thread": results,
                "loads_per_result": (loads * (1 - staged) + copied) / results,
                "lines_per_load": lines if window.last else np.where(staged, _copied(shape), lines),
                "conflicts": np.where(staged, lines, 1.0),
                "predicates": _borders(shape),
                "edge_predicates": _uneven(shape, staged),
                "shared_bytes": shared,
            },
        )


def _staged(shape: Rectangles, settings: Sequence[Settings]) -> Floats:
    """Whether each setting has the input of a block in shared memory."""
    if shape.window.last:
        return np.zeros(len(settings))
    return np.minimum(column(settings, "staged"), 1.0)


def _asynchronous(shape: Rectangles, settings: Sequence[Settings]) -> Any:
    """Whether each setting has it there by asynchronous copies."""
    return 0 if shape.window.last else column(settings, "staged") == ASYNCHRONOUS


def _can_be_asynchronous(workload: Workload) -> bool:
    """Whether what is staged are an argument's elements as they are."""
    step, (data, *_), _ = anchored(workload)
    return data.dtype in SINGLE and is_from_argument(workload, step.inputs[0])


def _staged_bytes(workload: Workload, shape: Rectangles) -> Floats:
    planes, down, across = shape.staged
    return planes * down * across * float(bytes_of(staged_type(workload)))


def staged_type(workload: Workload) -> str:
    """The type in which input is kept: that of sums, but extremes of whole numbers as they are."""
    return element_type(anchored(workload)[1][0].dtype).accumulator


def _registers(workload: Workload, shape: Rectangles) -> Floats:
    words = bytes_of(staged_type(workload)) / _WORD_BYTES
    window = shape.window
    held = shape.rows * shape.columns
    if window.spelt_out:
        held = held + window.span(1, shape.columns) + (window.taps if window.weighted else 0)
    return _BASE_REGISTERS + words * held * shape.lanes


def _lanes(workload: Workload) -> tuple[int, ...]:
    """Channels that a thread may have, read at once: as many as divide them, in types that TVM
    prints vectors of, where every channel has one filter."""
    window = window_of(workload)
    printed = all(bytes_of(kind.dtype) == _WORD_BYTES for kind in workload.types)
    several = printed and window.multiplier == 1
    return (*(n for n in (_MOST_LANES, 2) if several and window.channels % n == 0), 1)


Reads = tuple[Floats, Floats, Floats, Floats]
"""Blocks; elements that a thread copies to shared memory; lines of 128 bytes, or turns of all
banks, that one load of a warp takes; elements that a block reads."""


def _borders(shape: Rectangles) -> Floats:
    """Comparisons of a place of the input with the sides of the image beyond which rectangles
    read."""
    window, found = shape.window, np.zeros(np.shape(shape.threads))
    sizes, own = (window.in_height, window.in_width), (shape.rows, shape.columns)
    for axis, (before, size) in enumerate(zip(window.padding, sizes, strict=True)):
        beyond = window.span(axis, shape.per_plane[axis] * own[axis]) - before > size
        found = found + (before > 0) + beyond
    return found


def _uneven(shape: Rectangles, staged: Floats) -> Floats:
    """Comparisons before results are written: whether there are such rows and columns, and unless
    rectangles are `staged`, whether the thread has one."""
    window, (_, down, across) = shape.window, shape.tiles
    alone = 1 - staged
    rows: Floats = (staged * shape.down * down + alone * shape.per_plane[0]) * shape.rows
    columns: Floats = (staged * shape.across * across + alone * shape.per_plane[1]) * shape.columns
    left = staged * (window.planes % shape.planes) + alone * (prod(shape.items) % shape.threads)
    return 1.0 * (rows > window.height) + 1.0 * (columns > window.width) + 1.0 * (left > 0)


def _loads(shape: Rectangles) -> Floats:
    """Loads of a thread from the cache or shared memory."""
    spans = shape.window.span(0, shape.rows), shape.window.span(1, shape.columns)
    return np.minimum(prod(spans), shape.rows * shape.columns * shape.window.taps).astype(float)


def _of_a_block(shape: Rectangles, staged: Floats) -> Reads:
    window = shape.window
    if window.last:
        return _of_a_block_of_channels(shape)
    held, pitch = (shape.planes, shape.down, shape.across), shape.staged
    (down, across), inside = shape.per_plane, window.in_height * window.in_width
    whole, there = prod(pitch), (window.planes, down, across)
    turns = turns_of_banks(_first_inputs(shape, held, pitch[1] * pitch[2], pitch[2]))
    words = _first_inputs(shape, there, inside, window.in_width)
    planes = np.maximum(1.0, shape.threads / (across * down))
    rows = np.minimum(down, np.maximum(1.0, shape.threads / across))
    read = planes * window.span(0, 1) + planes * (rows * shape.rows - 1) * window.strides[0]
    inputs = read * min(window.in_width, window.span(1, window.width))
    count = -(-window.planes * down * across // shape.threads)
    return (
        np.where(staged, prod(shape.tiles), count),
        np.where(staged, whole / shape.threads, 0.0),
        np.where(staged, turns, distinct(words * _WORD_BYTES // _LINE_BYTES)),
        np.where(staged, whole, inputs / np.minimum(window.multiplier, planes)),
    )


def _copied(shape: Rectangles) -> Floats:
    """Lines of 128 bytes that a warp reads at once when it copies input to shared memory, elements
    of the block's input one after the other: the mean of the first warps."""
    planes, down, across = (np.reshape(extent, (-1, 1)) for extent in shape.staged)
    size, first = planes * down * across, np.arange(_WARPS_LOOKED_AT) * _WARP
    numbers = (first[:, None] + np.arange(_WARP)).reshape(-1)
    rows, x = np.divmod(np.minimum(numbers, size - 1), across)
    plane, y = np.divmod(rows, down)
    words = (plane * shape.window.in_height + y) * shape.window.in_width + x
    lines = distinct(words.reshape(-1, _WARP) * _WORD_BYTES // _LINE_BYTES)
    there = first < size
    return (lines.reshape(there.shape) * there).sum(axis=1) / there.sum(axis=1)


def _of_a_block_of_channels(shape: Rectangles) -> Reads:
    """The same where channels are last: a block has neighbouring channels of rectangles side by
    side."""
    window, (_, down, across, groups) = shape.window, shape.items
    image, y, x, group = _of_a_warp(shape, shape.items)
    below, beside = shape.rows * window.strides[0], shape.columns * window.strides[1]
    pixels = (image * window.in_height + y * below[:, None]) * window.in_width
    pixels = pixels + x * beside[:, None]
    in_channels, lanes = window.channels // window.multiplier, shape.lanes[:, None]
    words = pixels * in_channels + group * lanes // window.multiplier
    lane = np.minimum(np.arange(_MOST_LANES), lanes - 1)
    words = (words[:, :, None] + lane[:, None]).reshape(len(words), -1)
    held = np.maximum(1.0, shape.threads / groups)
    rows = np.minimum(down, np.maximum(1.0, held / across)) * shape.rows
    columns = np.minimum(across, held) * shape.columns
    spans = window.span(0, rows), np.minimum(window.in_width, window.span(1, columns))
    read = np.maximum(1.0, held / (across * down)) * prod(spans)
    channels = np.minimum(in_channels, shape.threads * shape.lanes / window.multiplier)
    count = -(-prod(shape.items) // shape.threads)
    lines = distinct(words * _WORD_BYTES // _LINE_BYTES)
    return count.astype(float), np.zeros(len(words)), lines, read * channels


def _of_a_warp(shape: Rectangles, counts: tuple[Any, ...]) -> list[Any]:
    """Which of so many rectangles the threads of a warp in the middle have, along each axis: a row
    per setting; threads without one have that of the last."""
    total: Numbers = np.asarray(prod(counts), np.int64)
    threads = np.minimum(_WARP, total)
    first = np.where(total > shape.threads, (total - threads) // 2 // _WARP * _WARP, 0)
    rest = first[:, None] + np.minimum(np.arange(_WARP), threads[:, None] - 1)
    found = list[Any]()
    for count in reversed(counts[1:]):
        rest, place = np.divmod(rest, np.broadcast_to(count, total.shape)[:, None])
        found.insert(0, place)
    return [rest, *found]


def _first_inputs(shape: Rectangles, counts: tuple[Any, ...], plane: Any, row: Any) -> Any:
    """Where the first input of each thread of a warp lies, in elements, when planes and rows of the
    input are so many apart."""
    (down, across), (image, y, x) = shape.window.strides, _of_a_warp(shape, counts)
    apart = (plane, shape.rows * down * row, shape.columns * across)
    return sum(
        place * np.reshape(by, (-1, 1)) for place, by in zip((image, y, x), apart, strict=True)
    )


SPEC = WindowKernels()

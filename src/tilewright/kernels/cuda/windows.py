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
from typing import TypeVar

import numpy as np

from tilewright.core.element_types import element_type
from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Demand
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE, Knob, anchored
from tilewright.kernels.columns import Numbers, column
from tilewright.kernels.cuda.base import bytes_of
from tilewright.kernels.cuda.composing import MOST_ELEMENTS, elementwise_after
from tilewright.kernels.cuda.images import ImageKernels, alike, channels_last, image_ports
from tilewright.kernels.ports import Ports

N = TypeVar("N", int, float)
POOLING = frozenset({"max_pool2d", "avg_pool2d"})
_WARP, _BANKS, _LINE_BYTES, _WORD_BYTES = 32, 32, 128, 4
_SPELT_OUT = 64
"""Taps of the largest window whose loops are spelt out."""
_MOST_PRODUCTS = 400
"""Of a thread, spelt out."""
_BASE_REGISTERS, _MOST_REGISTERS = 28.0, 128.0
_INSTRUCTIONS_OF_A_LOAD, _INSTRUCTIONS_OF_A_THREAD = 4.0, 40.0
"""With the comparisons of a padded border, and to find its place."""
_STEPS_OF_A_BARRIER = 0.2


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

    def span(self, axis: int, results: N) -> N:
        """Inputs along an axis from the first to the last that so many results read."""
        taps = (self.kernel[axis] - 1) * self.dilation[axis]
        return (results - 1) * self.strides[axis] + taps + 1


@dataclass(frozen=True, slots=True)
class Rectangles:
    """Who computes what: a thread `rows` by `columns` results, of `lanes` channels where those are
    last. A block of a staged kernel has `planes` times `down` by `across` of these rectangles, one
    per thread."""

    window: Window
    threads: int
    rows: int
    columns: int
    lanes: int = 1

    @property
    def items(self) -> tuple[int, ...]:
        """What threads are dealt out over, the last axis the fastest."""
        window = self.window
        if not window.last:
            return (window.planes, *self.per_plane)
        images, groups = window.planes // window.channels, window.channels // self.lanes
        return (images, *self.per_plane, groups)

    @property
    def per_plane(self) -> tuple[int, int]:
        """Rectangles of a plane, down and across."""
        return -(-self.window.height // self.rows), -(-self.window.width // self.columns)

    @property
    def across(self) -> int:
        """Rectangles side by side in a block."""
        return min(self.per_plane[1], _WARP)

    @property
    def down(self) -> int:
        """Rectangles one below the other in a block."""
        return min(self.per_plane[0], self.threads // self.across)

    @property
    def planes(self) -> int:
        """Planes of a block."""
        return min(self.window.planes, self.threads // (self.across * self.down))

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Blocks along planes, rows and columns."""
        down, across = self.per_plane
        planes = -(-self.window.planes // self.planes)
        return planes, -(-down // self.down), -(-across // self.across)

    @property
    def staged(self) -> tuple[int, int, int]:
        """The input of a block, as it is staged: planes, rows, columns."""
        window = self.window
        down, across = window.span(0, self.down * self.rows), window.span(1, self.across_columns)
        return self.planes, down, across

    @property
    def across_columns(self) -> int:
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


def rectangles_of(workload: Workload, forms: Ports, settings: Settings) -> Rectangles:
    """The rectangles of a setting."""
    threads, rows, columns = (int(settings[name]) for name in ("threads", "rows", "columns"))
    last = True in channels_last(workload, forms)
    lanes = int(settings["channels"]) if last else 1
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
        input is `staged` in shared memory, or where channels are last, how many `channels` a thread
        has."""
        last = True in channels_last(workload, forms)
        staged = Knob(name="staged", values=(0, 1))
        channels = Knob(name="channels", values=_lanes(workload), kind="split")
        return (
            Knob(name="threads", values=(64, 128, 256), kind="split"),
            Knob(name="rows", values=(1, 2, 4, 7), kind="split"),
            Knob(name="columns", values=(1, 2, 4, 7), kind="split"),
            channels if last else staged,
        )

    def valid(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Settings,
    ) -> bool:
        """Rectangles that are not larger than the result, registers and shared memory that fit, and
        a text that is not too long; windows that are not spelt out have one result a thread. An
        image that is read in one form and written in the other is left to other kernels."""
        shape = rectangles_of(workload, forms, settings)
        window, results = shape.window, shape.rows * shape.columns * shape.lanes
        if results > 1 and not window.spelt_out or not alike(workload, forms):
            return False
        if shape.rows > window.height or shape.columns > window.width:
            return False
        if results * window.taps > max(_MOST_PRODUCTS, window.taps):
            return False
        staged = 0 if window.last or not settings["staged"] else _staged_bytes(workload, shape)
        return (
            _registers(workload, shape) <= _MOST_REGISTERS
            and staged <= target.limits.static_shared_bytes
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
        take as long as that says, up to ten times as long as others.
        """
        shapes = [rectangles_of(workload, forms, one) for one in settings]
        last = shapes[0].window.last
        staged = np.zeros(len(shapes)) if last else column(settings, "staged")
        threads, lanes = column(settings, "threads"), np.array([float(it.lanes) for it in shapes])
        told = [_of_a_block(shape, bool(s > 0)) for shape, s in zip(shapes, staged, strict=True)]
        count, loads, copied, lines, moved = np.array(told, np.float64).T
        results = column(settings, "rows") * column(settings, "columns") * lanes
        window, size = shapes[0].window, bytes_of(anchored(workload)[1][0].dtype)
        weights = float(window.taps if window.weighted else 0)
        filters = np.minimum(threads * lanes, window.channels) if last else 1.0
        products = results * window.taps
        issued = loads + weights + _INSTRUCTIONS_OF_A_LOAD * (loads * (1 - staged) + copied)
        warps = threads / _WARP
        written = results * threads * bytes_of(workload.result.dtype)
        serial = 0.0 if window.spelt_out else window.taps / 4.0
        shared = staged * [_staged_bytes(workload, shape) for shape in shapes]
        blocks = Blocks(
            count=count,
            threads=threads,
            registers=np.array([_registers(workload, shape) for shape in shapes]),
            shared_bytes=shared,
            operations=2.0 * products * threads,
            instructions=warps * (issued + products + results + _INSTRUCTIONS_OF_A_THREAD),
            shared_traffic_bytes=warps * (loads * lines + copied * staged) * _LINE_BYTES,
            traffic_bytes=moved * size + written + 4.0 * weights * filters,
            steps=np.where(staged, np.ceil(copied) + _STEPS_OF_A_BARRIER, 1.0 + serial),
            memory_bytes=float(workload.bytes),
        )
        return Demand(
            pieces=count,
            blocks=(blocks,),
            details={
                "elements_per_thread": results,
                "loads_per_result": (loads * (1 - staged) + copied) / results,
                "lines_per_load": lines,
                "shared_bytes": shared,
            },
        )


def _staged_bytes(workload: Workload, shape: Rectangles) -> float:
    return float(prod(shape.staged) * bytes_of(staged_type(workload)))


def staged_type(workload: Workload) -> str:
    """The type in which input is kept: that of sums, but extremes of whole numbers as they are."""
    return element_type(anchored(workload)[1][0].dtype).accumulator


def _registers(workload: Workload, shape: Rectangles) -> float:
    words = bytes_of(staged_type(workload)) / _WORD_BYTES
    window = shape.window
    held = shape.rows * shape.columns
    if window.spelt_out:
        held += window.span(1, shape.columns) + (window.taps if window.weighted else 0)
    return _BASE_REGISTERS + words * held * shape.lanes


def _lanes(workload: Workload) -> tuple[int, ...]:
    """Channels that a thread may have, read at once: as many as divide them, in types that TVM
    prints vectors of, where every channel has one filter."""
    window = window_of(workload)
    printed = all(bytes_of(kind.dtype) == _WORD_BYTES for kind in workload.types)
    several = printed and window.multiplier == 1
    return (*(n for n in (4, 2) if several and window.channels % n == 0), 1)


def _of_a_block(shape: Rectangles, staged: bool) -> tuple[float, float, float, float, float]:
    """Blocks; loads of a thread from the cache or shared memory; elements it copies there; lines
    of 128 bytes, or turns of all banks, that one load of a warp takes; elements a block reads."""
    window = shape.window
    spans = window.span(0, shape.rows), window.span(1, shape.columns)
    loads = float(min(prod(spans), shape.rows * shape.columns * window.taps))
    if window.last:
        return _of_a_block_of_channels(shape, loads)
    if staged:
        whole = float(prod(shape.staged))
        held, pitch = (shape.planes, shape.down, shape.across), shape.staged
        words = _first_inputs(shape, held, pitch[1] * pitch[2], pitch[2])
        turns = np.bincount(np.unique(words) % _BANKS).max()
        return float(prod(shape.tiles)), loads, whole / shape.threads, float(turns), whole
    down, across = shape.per_plane
    inside = window.in_height * window.in_width
    words = _first_inputs(shape, (window.planes, down, across), inside, window.in_width)
    lines = len(np.unique(words * _WORD_BYTES // _LINE_BYTES))
    count = -(-window.planes * down * across // shape.threads)
    planes = max(1.0, shape.threads / (across * down))
    rows = min(down, max(1.0, shape.threads / across))
    read = planes * window.span(0, 1) + planes * (rows * shape.rows - 1) * window.strides[0]
    inputs = read * min(window.in_width, window.span(1, window.width))
    return float(count), loads, 0.0, float(lines), inputs / min(window.multiplier, planes)


def _of_a_block_of_channels(
    shape: Rectangles, loads: float
) -> tuple[float, float, float, float, float]:
    """The same where channels are last: a block has neighbouring channels of rectangles side by
    side."""
    window, (_, down, across, groups) = shape.window, shape.items
    total = prod(shape.items)
    threads = min(_WARP, total)
    first = (total - threads) // 2 // _WARP * _WARP if total > shape.threads else 0
    image, y, x, group = np.unravel_index(np.arange(first, first + threads), shape.items)
    below, beside = shape.rows * window.strides[0], shape.columns * window.strides[1]
    pixels = (image * window.in_height + y * below) * window.in_width + x * beside
    in_channels = window.channels // window.multiplier
    words = pixels * in_channels + group * shape.lanes // window.multiplier
    words = words[:, None] + np.arange(shape.lanes)
    lines = len(np.unique(words * _WORD_BYTES // _LINE_BYTES))
    held = max(1.0, shape.threads / groups)
    rows = min(float(down), max(1.0, held / across)) * shape.rows
    columns = min(float(across), held) * shape.columns
    spans = window.span(0, rows), min(float(window.in_width), window.span(1, columns))
    read = max(1.0, held / (across * down)) * prod(spans)
    channels = min(in_channels, shape.threads * shape.lanes / window.multiplier)
    return float(-(-total // shape.threads)), loads, 0.0, float(lines), read * channels


def _first_inputs(shape: Rectangles, counts: tuple[int, int, int], plane: int, row: int) -> Numbers:
    """Where the first input of each thread of a warp lies, in elements, when planes and rows of the
    input are so many apart."""
    strides, total = shape.window.strides, prod(counts)
    threads = min(_WARP, total)
    first = (total - threads) // 2 // _WARP * _WARP if total > shape.threads else 0
    items = np.unravel_index(np.arange(first, first + threads), counts)
    across = items[2] * shape.columns * strides[1]
    return np.asarray(
        items[0] * plane + items[1] * shape.rows * strides[0] * row + across, np.int64
    )


SPEC = WindowKernels()

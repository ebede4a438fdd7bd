"""Workloads in which each element of the result needs a few elements: elementwise chains, movements
of all kinds, and local response normalisation.

A thread computes vectors of neighbouring elements, as many as it has, a block's vectors side by
side. Where neighbours in the result lie far apart in memory, as after a transposition, a block
computes a tile in the order of the operand and writes it in that of the result, through shared
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Demand
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import Knob
from tilewright.kernels.columns import Bools, Floats, Numbers, by_combination, column, least, whole
from tilewright.kernels.cuda.accesses import SECTOR_BYTES, elements_read, sectors, turns_of_banks
from tilewright.kernels.cuda.base import ColumnKernels, bytes_of
from tilewright.kernels.cuda.composing import MOST_ELEMENTS, costly_values
from tilewright.kernels.cuda.images import in_memory, moving_ports, turns
from tilewright.kernels.ports import Ports

_WORD_BYTES = 4
_MOST_OF_A_THREAD = 32
_WARPS_LOOKED_AT = 12
_IMAGE_RANK = 4
_INSTRUCTIONS_OF_A_PLACE = 4.0
"""To find a position along one axis of a tensor that another one is moved to."""
_INSTRUCTIONS_OF_A_FUNCTION = 12.0
_BASE_REGISTERS = 16.0


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of the result of `across` by `along` elements: `axis` is the one along which the
    operand lies in memory, the innermost long axis `fast` the one along which the result does.
    Numbers of one setting, or columns of many."""

    axis: int
    fast: int
    across: Any
    along: Any

    @property
    def pitch(self) -> Any:
        """Elements between rows in shared memory: odd, so that a column lies in all banks."""
        return self.across | 1


def stored_value(workload: Workload) -> int:
    """The value whose elements lie in memory in the order of the result: what trailing reshapes
    have left of it."""
    value = len(workload.types) - 1
    while value >= len(workload.arguments):
        step = workload.steps[value - len(workload.arguments)]
        if step.operator != "reshape":
            break
        (value,) = step.inputs
    return value


@lru_cache(maxsize=1024)
def transposed(workload: Workload) -> tuple[int, int] | None:
    """The axes of the stored value along which its largest argument and itself lie in memory, where
    these are two."""
    value = stored_value(workload)
    shape = workload.types[value].shape
    long = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not long or not workload.arguments:
        return None
    middle = [min(extent // 2, max(0, extent - 2)) for extent in shape]
    moved = [[i + (axis == other) for other, i in enumerate(middle)] for axis in long]
    flat = np.asarray(np.ravel_multi_index(tuple(np.array([middle, *moved]).T), shape), np.int64)
    largest = max(a.type.elements for a in workload.arguments)
    for argument, elements in elements_read(workload, flat, value):
        alone = workload.arguments[argument].type.elements == largest
        if not alone or largest * 2 < prod(shape) or (elements < 0).any():
            continue
        steps = np.abs(elements[1:] - elements[0])
        beside = [axis for axis, by in zip(long, steps, strict=True) if by == 1]
        if beside and beside[0] != long[-1] and steps[-1] > 1:
            return beside[0], long[-1]
    return None


def tile_of(workload: Workload, elements: Any) -> Tile | None:
    """The tile of about so many elements; None where nothing is transposed."""
    axes = transposed(workload)
    if axes is None:
        return None
    axis, fast = axes
    shape = workload.types[stored_value(workload)].shape
    along = min(shape[fast], 32)
    across = least(shape[axis], elements // along)
    return Tile(axis, fast, across, least(shape[fast], elements // across))


class Stream(ColumnKernels):
    """Spec of kernels that stream through memory."""

    name = "cuda_stream"
    anchors = frozenset(
        {"elementwise", "lrn", *(name for name, known in OPERATORS.items() if known.movement)}
    )

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """No anchor but `lrn` of planes, something to compute; nothing kept in a register may be
        read where there may be no element."""
        steps, anchor = workload.steps, workload.anchor
        known = all(
            OPERATORS[step.operator].elementwise
            or OPERATORS[step.operator].movement
            or step.operator == "lrn"
            for step in steps
        )
        planes = anchor is None or len(workload.step_types(_place(workload))[1].shape) == 4
        guarded = any(step.operator in ("pad", "concat", "cache_write") for step in steps)
        deep = bool(costly_values(workload))
        return (
            known
            and planes
            and not (guarded and deep)
            and 0 < workload.result.elements < MOST_ELEMENTS
        )

    def port_forms(
        self, workload: Workload, target: Target, resources: Resources
    ) -> tuple[Ports, ...]:
        """Images with their channels where they are, or last; a kernel may turn them on the way."""
        return moving_ports(workload)

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """`threads` of a block, lanes of a `vector`, `vectors` of a thread, `tiled` through shared
        memory or not. The first ones are taken where memory limits all of them alike."""
        there = in_memory(workload, forms)
        lanes = (4, 2, 1) if _takes_vectors(workload) else (1,)
        return (
            Knob(name="threads", values=(128, 256, 512), kind="split"),
            Knob(name="vector", values=lanes, kind="split"),
            Knob(name="vectors", values=(1, 2, 4, 8), kind="split"),
            Knob(name="tiled", values=(1, 0) if transposed(there) else (0,)),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Tiles of single elements that fit into shared memory; few elements of a thread."""
        threads, vector, vectors = (whole(settings, n) for n in ("threads", "vector", "vectors"))
        kept = _shared_bytes(workload, tile_of(in_memory(workload, forms), threads * vectors))
        fits = (vector == 1) & (kept > 0) & (kept <= target.limits.static_shared_bytes)
        tiled = column(settings, "tiled") > 0
        few: Bools = vector * vectors <= _MOST_OF_A_THREAD
        return np.where(tiled, fits, few)

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Sectors that warps touch, loads that are under way together, instructions."""
        threads, vector, vectors, tiled = (
            column(settings, name) for name in ("threads", "vector", "vectors", "tiled")
        )
        there = in_memory(workload, forms)
        requests, touched, stored = by_combination(partial(_requests, there), vector, tiled).T
        warps, elements = threads / target.limits.warp, workload.result.elements
        tile = tile_of(there, (threads * vectors).astype(np.int64))
        shared = _shared_bytes(workload, tile) * tiled
        count = np.where(
            tiled > 0, _tiles(there, tile), np.ceil(elements / (threads * vector * vectors))
        )
        placed = _INSTRUCTIONS_OF_A_PLACE * _IMAGE_RANK * turns(workload, forms)
        computed = _instructions(workload, target) + placed
        each = vectors * (requests + 1 + vector * computed) + 8
        narrow = max(1.0, bytes_of(workload.result.dtype) / 4)
        under_way = np.minimum(vectors, 2.0) * vector * narrow
        registers = _BASE_REGISTERS + under_way * (1 + len(workload.arguments))
        blocks = Blocks(
            count=count,
            threads=threads,
            registers=np.minimum(registers, 128.0),
            shared_bytes=shared,
            operations=workload.flop / count,
            instructions=warps * each,
            shared_traffic_bytes=2.0 * shared,
            traffic_bytes=warps * vectors * (touched + stored) * SECTOR_BYTES,
            steps=1.0 + _indirect(workload) + tiled,
            memory_bytes=float(workload.bytes),
        )
        return Demand(
            pieces=count,
            blocks=(blocks,),
            details={
                "elements_per_thread": vector * vectors,
                "sectors_per_request": touched / np.maximum(1.0, requests),
                "conflicts": _conflicts(tile, len(tiled)) * tiled + (1 - tiled),
                "predicates": _uneven(there, tile, threads) * tiled,
                "edge_predicates": np.where(
                    tiled,
                    _uneven(there, tile, threads),
                    elements % (threads * vector * vectors) > 0,
                ),
                "shared_bytes": shared,
            },
        )


def _place(workload: Workload) -> int:
    return workload.anchor_index or 0


def _takes_vectors(workload: Workload) -> bool:
    """Types that TVM prints vectors of, and no value that is kept in a register of its own."""
    kinds = {kind.dtype for kind in workload.types}
    printed = all(kind == "float16" or bytes_of(kind) == _WORD_BYTES for kind in kinds)
    return printed and not costly_values(workload)


def _indirect(workload: Workload) -> float:
    """Loads whose address another load gives."""
    return float(
        sum(s.operator in ("gather", "cache_write", "interpolate") for s in workload.steps)
    )


def _instructions(workload: Workload, target: Target) -> float:
    """Of one element, without loads and stores."""
    steps = workload.steps
    functions = sum(OPERATORS[step.operator].transcendental for step in steps)
    moved = [
        len(kind.shape)
        for step, kind in zip(steps, workload.types[len(workload.arguments) :], strict=True)
        if OPERATORS[step.operator].movement
    ]
    window = sum(step.integer("size") for step in steps if step.operator == "lrn")
    plain = sum(OPERATORS[step.operator].elementwise for step in steps)
    places = _INSTRUCTIONS_OF_A_PLACE * sum(moved)
    return plain + 3.0 * window + functions * _INSTRUCTIONS_OF_A_FUNCTION + places


def _shared_bytes(workload: Workload, tile: Tile | None) -> Floats | float:
    return tile.along * tile.pitch * float(bytes_of(workload.result.dtype)) if tile else 0.0


def _tiles(workload: Workload, tile: Tile | None) -> Floats | float:
    if tile is None:
        return 1.0
    shape = workload.types[stored_value(workload)].shape
    across, along = -(-shape[tile.axis] // tile.across), -(-shape[tile.fast] // tile.along)
    return across * along * prod(shape) // (shape[tile.axis] * shape[tile.fast])


def _uneven(workload: Workload, tile: Tile | None, threads: Floats) -> Floats | float:
    """Comparisons before an element of a tile: whether the thread has one, and either side of the
    tensor."""
    if tile is None:
        return 0.0
    shape = workload.types[stored_value(workload)].shape
    sides = ((tile.axis, tile.across), (tile.fast, tile.along))
    own = 1.0 * (tile.across * tile.along % threads > 0)
    return own + sum(1.0 * (shape[axis] % size > 0) for axis, size in sides)


def _conflicts(tile: Tile | None, count: int) -> Floats | float:
    """Times that the worst access of a warp to a tile takes over one without conflicts: elements
    are put there along one axis, and got along the other."""
    if tile is None:
        return 1.0
    lanes = np.arange(32)
    across, along = (np.broadcast_to(each, count)[:, None] for each in (tile.across, tile.along))
    put = lanes // across * tile.pitch[:, None] + lanes % across
    got = lanes % along * tile.pitch[:, None] + lanes // along
    return np.maximum(turns_of_banks(put), turns_of_banks(got))


@lru_cache(maxsize=4096)
def _requests(workload: Workload, vector: int, tiled: bool) -> tuple[float, float, float]:
    """Of a warp, for one vector of each of its threads: loads it issues, sectors they touch, and
    sectors of the result."""
    value, anchor = stored_value(workload), workload.anchor
    places = _warps(workload, value, vector, tiled)
    flat, loads, touched = places.reshape(-1), 0.0, 0.0
    for argument, elements in [(0, flat)] if anchor else elements_read(workload, flat, value):
        width = bytes_of(workload.types[argument].dtype)
        rows = elements.reshape(*places.shape)
        touched += sectors(rows.reshape(len(rows), -1), width)
        beside = (np.diff(rows, axis=2) == 1).all() and not (rows[:, :, 0] % vector).any()
        loads += 1.0 if vector == 1 or beside else float(vector)
    size = bytes_of(workload.result.dtype)
    window = anchor.integer("size") if anchor else 1
    return loads * window, touched * (1.0 if window == 1 else 2.0), vector * size


def _warps(workload: Workload, value: int, vector: int, tiled: bool) -> Numbers:
    """Flat elements of some warps from all over the value: (warp, thread, lane)."""
    shape = workload.types[value].shape
    elements = prod(shape)
    lanes = np.arange(32 * vector)
    axes = transposed(workload)
    if tiled and axes is not None:
        apart = prod(shape[axes[0] + 1 :])
        lanes = lanes % max(1, min(32, shape[axes[0]])) * apart
    last = max(0, elements - 1 - int(lanes.max()))
    starts = np.linspace(0, last, _WARPS_LOOKED_AT).astype(np.int64)
    starts -= starts % (32 * vector) if not tiled else 0
    return np.minimum(starts[:, None] + lanes, elements - 1).reshape(-1, 32, vector)


SPEC = Stream()

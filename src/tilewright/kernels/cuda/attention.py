"""Attention on GPUs without a matrix of scores in memory.

A block of threads has a tile of queries of one head in shared memory and goes through the keys, a
tile after the other: products with the keys, mask, exponentials, products with the values. What was
added up before is scaled down whenever a larger score comes (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). Lanes that lie side
by side share their queries: each has some of the keys, then some of the columns of the values, and
they agree on the largest score and on sums by shuffles.

Tiles of keys that no query of the block sees are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import gcd
from typing import Any

import numpy as np

from tilewright.core.forms import Form
from tilewright.core.records import Candidate, Settings
from tilewright.core.targets import Resources, Target
from tilewright.cost.demand import Blocks, Column, Demand
from tilewright.graph.operators.attention import Heads, visible_keys
from tilewright.graph.workload import Workload
from tilewright.kernels.attention import extents
from tilewright.kernels.base import Knob, Workspaces, anchored
from tilewright.kernels.columns import Bools, Numbers, column
from tilewright.kernels.cuda.base import ColumnKernels, bytes_of
from tilewright.kernels.cuda.product_costs import sum_blocks, ways
from tilewright.kernels.cuda.product_tiles import RUN, SINGLE_BYTES, VECTOR, WARP, held_behind
from tilewright.kernels.cuda.products import FLOATS, MOST_ELEMENTS, is_pointwise, up_to

_TILES, _THREAD_TILES, _LANES = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8), (8, 16, 32)
_SPLITS = (1, 2, 4, 8, 16)
_MOST_THREADS, _MOST_SUMS, _MOST_WIDTH = 512, 64, 16
_REGISTERS = (40.0, 1.0, 3.0)
"""Of a thread: always, for a sum, for a query."""
_MOST_REGISTERS = 255
_POWER_INSTRUCTIONS, _MASK_INSTRUCTIONS, _COPY_INSTRUCTIONS = 6.0, 4.0, 10.0
"""Of a score: with its part of the largest and of the sum; of a mask; of an access that copies."""
_BANKS, _LINE_BYTES, _SECTOR_BYTES = 32, 128, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTiles:
    """How an attention is cut; numbers of one setting, or columns of many.

    A block has `queries`, each of its threads `thread_queries` of them; `lanes` threads share
    these. In a step each has `thread_keys` of the keys, and in the end `width` columns of the
    values. As many blocks as `split` says share the keys of their queries.
    """

    queries: Any
    thread_queries: Any
    lanes: Any
    thread_keys: Any
    split: Any
    width: Any

    @property
    def keys(self) -> Any:
        """Keys of a step."""
        return self.lanes * self.thread_keys

    @property
    def columns(self) -> Any:
        """Columns of values that all lanes cover."""
        return self.lanes * self.width

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return self.queries // self.thread_queries * self.lanes

    @property
    def pitches(self) -> tuple[Any, Any, Any, Any]:
        """Elements from one line to the next in shared memory: of queries and of keys, which lie
        depth by depth, of values and of scores, which lie key by key."""
        queries, keys = self.queries + VECTOR, self.keys + VECTOR
        return queries, keys, self.columns, queries

    def steps(self, heads: Heads) -> Any:
        """Steps of a block along its part of the keys."""
        return -(-heads.keys // (self.keys * self.split))

    def sizes(self, heads: Heads) -> tuple[Any, Any, Any]:
        """Elements in shared memory: of queries, of keys and in their place of scores, of
        values."""
        queries, keys, values, scores = self.pitches
        turned = np.maximum(heads.depth * keys, self.keys * scores)
        return heads.depth * queries, turned, self.keys * values

    def shared_bytes(self, heads: Heads) -> Any:
        """Shared memory of a block."""
        return SINGLE_BYTES * sum(self.sizes(heads))

    def where(self, chosen: Bools) -> AttentionTiles:
        """The columns with ones in all rows but the chosen ones."""
        columns = {it.name: np.where(chosen, getattr(self, it.name), 1) for it in fields(self)}
        return AttentionTiles(**columns)


def tiles_of(heads: Heads, settings: Settings) -> AttentionTiles:
    """The tiles of a setting."""
    return _tiles(heads, {name: int(settings[name]) for name in _KNOBS})


def _tiles(heads: Heads, values: Any) -> AttentionTiles:
    return AttentionTiles(**values, width=-(-heads.width // values["lanes"]))


_KNOBS = tuple(it.name for it in fields(AttentionTiles) if it.name != "width")


def run_of(length: int) -> int:
    """Elements of a line that neighbouring lanes copy where it is written across."""
    run = gcd(length, RUN)
    return run if run >= VECTOR else length


def lines(workload: Workload) -> tuple[int, int, int]:
    """Elements of queries, of keys and of values that are read at once: singles only, where the
    lines of a head begin at whole vectors."""
    step, operands, _ = anchored(workload, "attention")
    heads, found = extents(workload), list[int]()
    for value, kind, extent in zip(
        step.inputs, operands, (heads.depth, heads.depth, heads.width), strict=False
    ):
        whole = kind.dtype == "float32" and value < len(workload.arguments)
        found.append(gcd(extent, VECTOR) if whole else 1)
    queries, keys, values = found
    return queries, keys, values


class CudaAttention(ColumnKernels):
    """Spec of the kernel."""

    name = "cuda_attention"
    anchors = frozenset({"attention"})

    def applies(self, workload: Workload, target: Target, resources: Resources) -> bool:
        """Floats of at most 32 bits, of sizes that 32-bit positions count, where a tile of keys and
        one of queries fit shared memory; elementwise steps behind it."""
        _, operands, result = anchored(workload)
        heads = extents(workload)
        kinds = (*operands[:3], result)
        sizes = [kind.elements for kind in (*kinds, *workload.types)]
        smallest = AttentionTiles(
            queries=1,
            thread_queries=1,
            lanes=WARP,
            thread_keys=1,
            split=1,
            width=-(-heads.width // WARP),
        )
        return (
            {kind.dtype for kind in kinds} <= FLOATS
            and min(*sizes, heads.depth, heads.width) > 0
            and max(sizes) < MOST_ELEMENTS
            and smallest.shared_bytes(heads) <= target.limits.block_shared_bytes
            and smallest.width <= _MOST_WIDTH
            and is_pointwise(workload)
            and not held_behind(workload)
        )

    def knobs(
        self, workload: Workload, target: Target, resources: Resources, forms: tuple[Form, ...]
    ) -> tuple[Knob, ...]:
        """Queries of a block and of a thread, lanes that share them, keys of a lane, and parts of
        the keys."""
        queries = up_to(extents(workload).queries, _TILES)
        return (
            Knob(name="queries", values=queries, kind="split"),
            Knob(name="thread_queries", values=up_to(queries[-1], _THREAD_TILES), kind="split"),
            Knob(name="lanes", values=_LANES, kind="split"),
            Knob(name="thread_keys", values=_THREAD_TILES, kind="split"),
            Knob(name="split", values=_SPLITS, kind="split"),
        )

    def valid_many(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Bools:
        """Whole warps, as many threads as a block may have, with registers and shared memory for
        all of them."""
        heads, limits = extents(workload), target.limits
        tiles = _columns(heads, settings)
        fits = tiles.queries >= tiles.thread_queries
        fits &= (tiles.threads >= WARP) & (tiles.threads <= _MOST_THREADS)
        fits &= (tiles.width <= _MOST_WIDTH) & (tiles.thread_queries * tiles.width <= _MOST_SUMS)
        fits &= tiles.thread_queries * tiles.thread_keys <= _MOST_SUMS
        safe = tiles.where(fits)
        fits &= safe.shared_bytes(heads) <= limits.block_shared_bytes
        fits &= _registers(safe) * safe.threads <= limits.registers
        fits &= (safe.split - 1) * safe.steps(heads) * safe.keys < heads.keys
        parts = safe.split * float(heads.batch * heads.heads * heads.queries * heads.width)
        return fits & (_blocks(heads, safe) <= limits.grid[0]) & (parts < MOST_ELEMENTS)

    def workspaces(
        self, workload: Workload, candidate: Candidate, target: Target, resources: Resources
    ) -> Workspaces:
        """What several blocks find of one result: sums, their largest scores, and totals."""
        heads, split = extents(workload), int(candidate.setting("split"))
        found = SINGLE_BYTES * split * heads.batch * heads.heads * heads.queries
        return Workspaces(shared=(found * heads.width, found, found) if split > 1 else ())

    def demand(
        self,
        workload: Workload,
        target: Target,
        resources: Resources,
        forms: tuple[Form, ...],
        settings: Sequence[Settings],
    ) -> Demand:
        """Both products with what they waste, exponentials, keys and values that are copied."""
        heads = extents(workload)
        tiles = _columns(heads, settings)
        blocks, steps = np.asarray(_blocks(heads, tiles), np.float64), _steps(workload, tiles)
        threads = np.asarray(tiles.threads, np.float64)
        found = float(heads.batch * heads.heads * heads.queries)
        block_depths = tiles.queries * tiles.keys * (heads.depth + tiles.columns)
        seen = float(np.mean(_seen(workload)))
        useful = found * (heads.depth + heads.width)
        issued, moved = _thread_instructions(workload, tiles), _shared_lines(workload, tiles)
        sizes = [bytes_of(kind.dtype) for kind in anchored(workload)[1][:3]]
        copied = tiles.keys * (heads.depth * sizes[1] + heads.width * sizes[2])
        whole = tiles.queries * (heads.depth * sizes[0] + heads.width * sizes[0])
        shared = np.asarray(tiles.shared_bytes(heads), np.float64)
        registers = _registers(tiles)
        parts = SINGLE_BYTES * found * (heads.width + 2) * tiles.split * (tiles.split > 1)
        main = Blocks(
            count=blocks,
            threads=threads,
            registers=registers,
            shared_bytes=shared,
            operations=2.0 * steps * block_depths,
            instructions=steps * issued * threads / WARP,
            shared_traffic_bytes=steps * moved * threads / WARP * _LINE_BYTES,
            traffic_bytes=steps * copied + whole,
            steps=1.0 + steps,
            memory_bytes=workload.bytes + parts,
        )
        return Demand(
            pieces=blocks,
            blocks=(main, sum_blocks(found * heads.width, tiles.split, parts)),
            details={
                "threads": threads,
                "registers": registers,
                "shared_bytes": shared,
                "waste": blocks * steps * block_depths / (useful * seen),
                "steps": steps,
                "conflicts": _conflicts(workload, tiles),
                "coalesced": np.full(len(settings), _sectors(workload)),
                "predicates": 2.0
                + (heads.keys % tiles.keys > 0)
                + float(bool(anchored(workload)[0].attribute("causal"))),
                "edge_predicates": 1.0 * (heads.queries % tiles.queries > 0),
            },
        )


def _columns(heads: Heads, settings: Sequence[Settings]) -> AttentionTiles:
    values: dict[str, Numbers] = {name: column(settings, name).astype(np.int64) for name in _KNOBS}
    return _tiles(heads, values)


def _blocks(heads: Heads, tiles: AttentionTiles) -> Any:
    return heads.batch * heads.heads * -(-heads.queries // tiles.queries) * tiles.split


def _registers(tiles: AttentionTiles) -> Column:
    """Registers of a thread, roughly."""
    always, of_a_sum, of_a_query = _REGISTERS
    sums = tiles.thread_queries * (tiles.width + tiles.thread_keys)
    found = always + of_a_sum * sums + of_a_query * tiles.thread_queries
    return np.minimum(found, _MOST_REGISTERS)


def _seen(workload: Workload) -> Column:
    """How many keys each query sees."""
    heads = extents(workload)
    if not anchored(workload)[0].attribute("causal"):
        return np.full(heads.queries, float(heads.keys))
    return np.maximum(1.0, visible_keys(heads.queries, heads.keys))


def _steps(workload: Workload, tiles: AttentionTiles) -> Column:
    """Tiles of keys that a block goes through, on average over blocks."""
    count, seen = extents(workload).queries, _seen(workload)
    pairs: list[tuple[int, int]] = np.stack(
        [tiles.queries, tiles.keys * tiles.split], axis=-1
    ).tolist()
    found = [
        np.ceil(seen[np.minimum(np.arange(own - 1, count + own - 1, own), count - 1)] / keys).mean()
        for own, keys in pairs
    ]
    return np.array(found, np.float64)


def _thread_instructions(workload: Workload, tiles: AttentionTiles) -> Column:
    """What a thread issues in a step."""
    heads, own, keys = extents(workload), tiles.thread_queries, tiles.thread_keys
    reads = [-(-extent // VECTOR) for extent in (own, keys, tiles.width)]
    scores = own * keys
    products = heads.depth * (scores + reads[0] + reads[1])
    sums = tiles.keys * (own * tiles.width + reads[0] + reads[2])
    masks = len(anchored(workload)[0].inputs) > 3 or anchored(workload)[0].attribute("causal")
    powers = scores * (_POWER_INSTRUCTIONS + _MASK_INSTRUCTIONS * bool(masks))
    agreed = own * (4.0 * np.log2(tiles.lanes) + tiles.width + 6.0)
    _, key_vector, value_vector = lines(workload)
    copies = tiles.keys * (heads.depth / key_vector + heads.width / value_vector) / tiles.threads
    return products + sums + powers + agreed + _COPY_INSTRUCTIONS * np.ceil(copies)


def _shared_lines(workload: Workload, tiles: AttentionTiles) -> Column:
    """Lines of shared memory that a warp moves in a step, conflicts counted."""
    heads = extents(workload)
    own, keys, width = tiles.thread_queries, tiles.thread_keys, tiles.width
    beside = tiles.lanes / _BANKS

    def lined(extent: Any) -> Any:
        wide = np.minimum(VECTOR, extent)
        return extent / wide * np.maximum(1.0, np.ceil(wide * beside))

    of_queries = -(-own // VECTOR)
    products = heads.depth * (of_queries + lined(keys))
    sums = tiles.keys * (of_queries + lined(width))
    copied = tiles.keys * (heads.depth + tiles.columns) / tiles.threads
    return products + sums + (copied + own * keys) * _conflicts(workload, tiles)


def _conflicts(workload: Workload, tiles: AttentionTiles) -> Column:
    """Times that the worst write to shared memory takes over one without conflicts: scores of keys
    that lie lines apart, or keys, which are written across."""
    rows = zip(
        tiles.lanes.tolist(),
        np.minimum(VECTOR, tiles.thread_keys).tolist(),
        np.minimum(VECTOR, tiles.thread_queries).tolist(),
        tiles.pitches[3].tolist(),
        strict=True,
    )
    run, vector = run_of(extents(workload).depth), lines(workload)[1]
    return np.maximum(
        np.array([_ways_of(*row) for row in rows], np.float64),
        ways(run, vector, tiles.pitches[1], tiles.keys),
    )


@cache
def _ways_of(lanes: int, keys: int, queries: int, pitch: int) -> float:
    own, lane = np.divmod(np.arange(WARP), lanes)
    first = lane * keys * pitch + own * queries
    words = np.unique(first[:, None] + np.arange(queries))
    return float(np.bincount(words % _BANKS).max() / queries)


def _sectors(workload: Workload) -> float:
    """Of a warp's load of keys or values."""
    heads, vectors = extents(workload), lines(workload)
    found = list[float]()
    for run, vector in ((run_of(heads.depth), vectors[1]), (heads.width, vectors[2])):
        line = min(run, WARP * vector)
        found.append(WARP * vector / line * max(1.0, line * SINGLE_BYTES / _SECTOR_BYTES))
    return float(np.mean(found))


SPEC = CudaAttention()

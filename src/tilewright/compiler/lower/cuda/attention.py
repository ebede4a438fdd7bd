"""The kernel of attention.

block (image, head, tile of queries)
  thread (queries of its own; lanes that share them)
    the tile's queries, scaled, into shared memory
    tile of keys that a query of the tile sees
      keys and values into shared memory
      depth
        query, key of the lane                  # products, in registers
      mask; the largest score of each query     # by shuffles among lanes
      exponentials into shared memory, their sum; what was added up before, scaled
      key
        query, column of the lane               # sums, in registers
    epilogue and stores, in vectors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import gcd, inf, prod
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.anchors import masked_score, widened
from tilewright.compiler.lower.cuda.statements import (
    SINGLE,
    buffer,
    elements,
    function_of,
    launched,
    named,
    unrolled,
    where,
)
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import broadcast_index, in_type, unravelled
from tilewright.core.targets import Resources, Target
from tilewright.graph.operators.attention import Heads
from tilewright.kernels.attention import extents
from tilewright.kernels.cuda.attention import lines, run_of, tiles_of
from tilewright.kernels.cuda.product_costs import SUMMING_THREADS
from tilewright.kernels.cuda.product_tiles import VECTOR

Expr = Any
_WHOLE_WARP = 0xFFFFFFFF
_ACCESSES = 8
"""Copies that a thread has under way at a time."""
_QUERIES, _KEYS, _VALUES, _SCORES = range(4)
"""Tiles in shared memory."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    static = target.limits.static_shared_bytes
    return program.begin(function_of(program, _Kernel(program, static).write))


def _single(value: float) -> Expr:
    return tirx.const(value, SINGLE)


class _Kernel:
    """The statements of one kernel."""

    def __init__(self, program: Program, static_bytes: int) -> None:
        self.program, self.simplify = program, program.simplify
        self.heads, self.step = extents(program.workload), program.workload.anchor
        self.tiles = tiles_of(self.heads, program.settings)
        self.vectors = lines(program.workload)
        small = self.tiles.shared_bytes(self.heads) <= static_bytes
        self.scope = "shared" if small else "shared.dyn"
        self.reached: Expr = None

    def write(self, result: Any) -> None:
        """The whole function."""
        program, heads, tiles = self.program, self.heads, self.tiles
        q, k, v, *self.mask = map(program.operand, self.step.inputs)
        self.q, self.k, self.v = (in_type(widened(each), SINGLE) for each in (q, k, v))
        kind = program.workload.step_types(program.workload.anchor_index)[1]
        program.set_anchor(lambda _: mathematics.converted(self.reached, kind.dtype))
        self.result, self.final = result, program.operand(len(program.workload.types) - 1)
        self.parts = self._parts() if tiles.split > 1 else []
        counts = (heads.batch, heads.heads, -(-heads.queries // tiles.queries), tiles.split)
        with launched(program, prod(counts), tiles.threads) as (block, self.thread):
            self.image, self.head, tile, self.part = unravelled(block, counts, self.simplify)
            self.source = self.simplify(tirx.floordiv(self.head, heads.heads // heads.key_heads))
            self.first = tile * tiles.queries
            self.own, self.lane = self.simplify.split(self.thread, tiles.lanes)
            self._buffers()
            self._attend()
        if self.parts:
            count = prod(_result_shape(heads))
            with launched(program, -(-count // SUMMING_THREADS), SUMMING_THREADS) as at:
                block, thread = at
                self._combined(block * SUMMING_THREADS + thread, count)

    def _parts(self) -> list[Any]:
        """What several blocks find of one result: sums, the largest score, and the total."""
        heads = self.heads
        shape = (self.tiles.split, heads.batch, heads.heads, heads.queries)
        names = ("parts", "largest_parts", "total_parts")
        return [
            buffer(each, name, "global")
            for each, name in zip(((*shape, heads.width), shape, shape), names, strict=True)
        ]

    def _combined(self, number: Expr, count: int) -> None:
        """One result of the second kernel."""
        heads = self.heads
        place = unravelled(number, _result_shape(heads), self.simplify)
        image, query, head, column = place
        with where(number < count if count % SUMMING_THREADS else None):
            largest, total, found = (
                buffer((1,), name, "local") for name in ("top", "whole", "found")
            )
            largest[0], total[0], found[0] = _single(-inf), _single(0), _single(0)
            with named(build.serial(0, self.tiles.split), "part") as part:
                largest[0] = tirx.max(largest[0], self.parts[1][part, image, head, query])
            base = tirx.Select(largest[0] == _single(-inf), _single(0), largest[0])
            with named(build.serial(0, self.tiles.split), "part") as part:
                at = (part, image, head, query)
                weight = tirx.exp(self.parts[1][at] - base)
                total[0] = total[0] + weight * self.parts[2][at]
                found[0] = found[0] + weight * self.parts[0][(*at, column)]
            self.reached = found[0] / total[0]
            at = [image, query, head * heads.width + column]
            self.result[tuple(at)] = self.final.read(at)

    def _buffers(self) -> None:
        tiles = self.tiles
        self.pitches = tiles.pitches
        queries, keys, values = (
            buffer((size,), name, self.scope)
            for size, name in zip(
                tiles.sizes(self.heads), ("queries", "keys", "values"), strict=True
            )
        )
        # scores lie where the keys were
        self.shared = [queries, keys, values, keys]
        own, columns = tiles.thread_queries, tiles.width
        self.products = buffer((own * tiles.thread_keys,), "products", "local")
        self.sums = buffer((own * columns,), "sums", "local")
        self.largest, self.total, self.scale, self.before = (
            buffer((own,), name, "local") for name in ("largest", "total", "scale", "before")
        )
        self.query = buffer((own,), "query", "local")
        self.key = buffer((tiles.thread_keys,), "key", "local")
        self.value = buffer((columns,), "value", "local")

    def _attend(self) -> None:
        heads, tiles = self.heads, self.tiles
        self._copied(_QUERIES, self._scaled_query, (tiles.queries, heads.depth), across=True)
        with self._each_query() as i:
            self.largest[i], self.total[i] = _single(-inf), _single(0)
        with unrolled(tiles.thread_queries * tiles.width, "i") as i:
            self.sums[i] = _single(0)
        with named(build.serial(0, self._steps()), "step") as step:
            self.begin = (self.part * tiles.steps(heads) + step) * tiles.keys
            self._copied(_KEYS, self._key, (tiles.keys, heads.depth), across=True)
            self._copied(_VALUES, self._value, (tiles.keys, tiles.columns), across=False)
            self._compared()
            self._normalised()
            self._added()
        self._written()

    def _steps(self) -> Expr:
        """Tiles of keys that a query of the tile sees."""
        heads, tiles = self.heads, self.tiles
        each = tiles.steps(heads)
        if not self.step.attribute("causal"):
            return each
        last = tirx.min(self.first + (tiles.queries - 1), heads.queries - 1)
        seen = tirx.max(last + (heads.keys - heads.queries + 1), 0)
        ahead = tirx.floordiv(seen + (tiles.keys - 1), tiles.keys) - self.part * each
        return tirx.max(tirx.min(ahead, each), 0) if self.parts else ahead

    # ----- places ----------------------------------------------------------------------------

    def _each_query(self) -> Any:
        return unrolled(self.tiles.thread_queries, "i")

    def _query_at(self, i: Expr) -> Expr:
        """Where a query of the thread lies in the tile."""
        own = self.tiles.thread_queries
        return self._interleaved(i, own, self.tiles.queries // own, self.own)

    def _key_at(self, j: Expr) -> Expr:
        return self._interleaved(j, self.tiles.thread_keys, self.tiles.lanes, self.lane)

    def _column_at(self, j: Expr) -> Expr:
        return self._interleaved(j, self.tiles.width, self.tiles.lanes, self.lane)

    def _interleaved(self, place: Expr, count: int, sharers: int, mine: Expr) -> Expr:
        """Vectors of the threads that share a line lie side by side."""
        wide = gcd(count, VECTOR)
        outer, inner = self.simplify.split(place, wide)
        return outer * (sharers * wide) + mine * wide + inner

    @contextmanager
    def _vectors(self, count: int) -> Iterator[tuple[Expr, Expr]]:
        """A thread's elements of a line, in vectors: where one begins, and the lane in it."""
        wide = gcd(count, VECTOR)
        with unrolled(count // wide, "vector") as vector, elements(wide) as lane:
            yield vector * wide, lane

    # ----- copies ----------------------------------------------------------------------------

    def _copied(
        self,
        place: int,
        read: Callable[[Expr, Expr, Expr], tuple[Expr, list[Expr]]],
        extents: tuple[int, int],
        *,
        across: bool,
    ) -> None:
        """A tile of so many lines of so many elements into shared memory, where it lies element by
        element if `across`; zero where there is nothing."""
        (count, length), threads = extents, self.tiles.threads
        wide, pitch = gcd(self.vectors[place], length), self.pitches[place]
        chunks = count * (length // wide)
        accesses = -(-chunks // threads)
        together = min(accesses, _ACCESSES)
        groups = -(-accesses // together)
        with (
            named(build.serial(0, groups), "group") as group,
            unrolled(together, "access") as access,
        ):
            self.simplify.announce([group, access], [groups, together])
            number = (group * together + access) * threads + self.thread
            run = run_of(length) if across else length
            rest, within = self.simplify.split(number, run // wide)
            outer, line = self.simplify.split(rest, count)
            with (
                where(number < chunks if groups * together * threads > chunks else None),
                elements(wide) as lane,
            ):
                at = outer * run + within * wide
                value, conditions = read(line, at, lane)
                inside = [each for each in conditions if each is not None]
                if inside:
                    value = tirx.if_then_else(tirx.all(*inside), value, _single(0))
                to = (at + lane) * pitch + line if across else line * pitch + at + lane
                self.shared[place][to] = value

    def _scaled_query(self, line: Expr, k: Expr, lane: Expr) -> tuple[Expr, list[Expr]]:
        heads, query = self.heads, self.first + line
        value = self.q.read([self.image, query, self.head * heads.depth + k + lane])
        inside = query < heads.queries if heads.queries % self.tiles.queries else None
        return value * _single(self.step.number("scale")), [inside]

    def _key(self, line: Expr, k: Expr, lane: Expr) -> tuple[Expr, list[Expr]]:
        key = self.begin + line
        value = self.k.read([self.image, key, self.source * self.heads.depth + k + lane])
        return value, [self._is_key(key)]

    def _value(self, line: Expr, column: Expr, lane: Expr) -> tuple[Expr, list[Expr]]:
        heads, key = self.heads, self.begin + line
        value = self.v.read([self.image, key, self.source * heads.width + column + lane])
        beyond = column < heads.width if self.tiles.columns > heads.width else None
        return value, [self._is_key(key), beyond]

    def _is_key(self, key: Expr) -> Expr:
        return key < self.heads.keys if self._torn() else None

    def _torn(self) -> bool:
        """Whether there are more places for keys than keys."""
        heads, tiles = self.heads, self.tiles
        return tiles.steps(heads) * tiles.split * tiles.keys > heads.keys

    # ----- a step ----------------------------------------------------------------------------

    def _compared(self) -> None:
        """Products of the thread's queries and keys, masked."""
        tiles, keys = self.tiles, self.tiles.thread_keys
        with unrolled(tiles.thread_queries * keys, "i") as i:
            self.products[i] = _single(0)
        with named(build.serial(0, self.heads.depth), "k") as k:
            self._read_line(self.query, tiles.thread_queries, _QUERIES, k, self._query_at)
            self._read_line(self.key, keys, _KEYS, k, self._key_at)
            with self._each_query() as i, unrolled(keys, "j") as j:
                at = i * keys + j
                self.products[at] = self.products[at] + self.query[i] * self.key[j]
        plain = not (self.mask or self.step.attribute("causal"))
        if plain and not self._torn():
            return
        with self._each_query() as i, unrolled(keys, "j") as j:
            at = i * keys + j
            self.products[at] = self._masked(self.products[at], i, j)

    def _read_line(
        self, into: Any, count: int, place: int, line: Expr, at: Callable[[Expr], Expr]
    ) -> None:
        """A thread's elements of a line of a tile."""
        with self._vectors(count) as (first, lane):
            found = self.shared[place][line * self.pitches[place] + at(first) + lane]
            into[first + lane] = found

    def _masked(self, score: Expr, i: Expr, j: Expr) -> Expr:
        heads = self.heads
        key, query = self.begin + self._key_at(j), self.first + self._query_at(i)
        if heads.queries % self.tiles.queries:
            query = tirx.min(query, heads.queries - 1)
        place = [self.image, self.head, query, key]
        read = [each.read(broadcast_index(place, each.type.shape)) for each in self.mask]
        score = masked_score(score, read, self.step.named, key - query, heads)
        inside = self._is_key(key)
        return score if inside is None else tirx.if_then_else(inside, score, _single(-inf))

    def _normalised(self) -> None:
        """The largest scores so far, exponentials into shared memory, and their sums."""
        tiles, keys = self.tiles, self.tiles.thread_keys
        with self._each_query() as i:
            self.before[i] = self.largest[i]
            with unrolled(keys, "j") as j:
                self.largest[i] = tirx.max(self.largest[i], self.products[i * keys + j])
            self._agreed(self.largest, i, tirx.max)
            # a query that has seen nothing yet has no largest score to subtract
            self.scale[i] = tirx.Select(
                self.largest[i] == _single(-inf), _single(0), self.largest[i]
            )
            with unrolled(keys, "j") as j:
                at = i * keys + j
                self.products[at] = tirx.exp(self.products[at] - self.scale[i])
            self.scale[i] = tirx.exp(self.before[i] - self.scale[i])
            self.before[i] = _single(0)
            with unrolled(keys, "j") as j:
                self.before[i] = self.before[i] + self.products[i * keys + j]
            self._agreed(self.before, i, lambda a, b: a + b)
            self.total[i] = self.total[i] * self.scale[i] + self.before[i]
            with unrolled(tiles.width, "j") as j:
                at = i * tiles.width + j
                self.sums[at] = self.sums[at] * self.scale[i]
        with unrolled(keys, "j") as j, self._vectors(tiles.thread_queries) as (first, lane):
            at = self._key_at(j) * self.pitches[_SCORES] + self._query_at(first) + lane
            self.shared[_SCORES][at] = self.products[(first + lane) * keys + j]

    def _agreed(self, values: Any, i: Expr, combine: Callable[[Expr, Expr], Expr]) -> None:
        """What the lanes that share a query make of their values, in all of them."""
        apart = self.tiles.lanes // 2
        while apart:
            other = tirx.op.tvm_warp_shuffle_xor(
                tirx.const(_WHOLE_WARP, "uint32"), values[i], apart, 32, 32
            )
            values[i] = combine(values[i], other)
            apart //= 2

    def _added(self) -> None:
        """Values times exponentials."""
        tiles, own = self.tiles, self.tiles.thread_queries
        with named(build.serial(0, tiles.keys), "k") as k:
            self._read_line(self.query, own, _SCORES, k, self._query_at)
            self._read_line(self.value, tiles.width, _VALUES, k, self._column_at)
            with self._each_query() as i, unrolled(tiles.width, "j") as j:
                at = i * tiles.width + j
                self.sums[at] = self.sums[at] + self.query[i] * self.value[j]

    def _written(self) -> None:
        """The results of a thread, with the epilogue."""
        heads, tiles = self.heads, self.tiles
        together = gcd(self.vectors[2], tiles.width)
        with self._each_query() as i:
            self.scale[i] = _single(1) / self.total[i]
        with self._each_query() as i, unrolled(tiles.width // together, "vector") as vector:
            query, column = self.first + self._query_at(i), self._column_at(vector * together)
            inside = query < heads.queries if heads.queries % tiles.queries else None
            beyond = column < heads.width if tiles.columns > heads.width else None
            with where(inside, beyond), elements(together) as lane:
                total = self.sums[i * tiles.width + vector * together + lane]
                if self.parts:
                    at = (self.part, self.image, self.head, query, column + lane)
                    self.parts[0][at] = total
                else:
                    self.reached = total * self.scale[i]
                    at = [self.image, query, self.head * heads.width + column + lane]
                    self.result[tuple(at)] = self.final.read(at)
        with self._each_query() as i:
            query = self.first + self._query_at(i)
            inside = query < heads.queries if heads.queries % tiles.queries else None
            for part, value in zip(self.parts[1:], (self.largest, self.total), strict=False):
                with where(inside, self.lane == 0):
                    part[self.part, self.image, self.head, query] = value[i]


def _result_shape(heads: Heads) -> tuple[int, int, int, int]:
    """The result's shape with its heads apart."""
    return heads.batch, heads.queries, heads.heads, heads.width

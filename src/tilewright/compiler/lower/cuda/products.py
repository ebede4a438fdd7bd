"""The kernel of products of matrices.

block (matrix, tile of rows, tile of columns, part of the depth)
  thread (warp; lanes by eight)
    step along the depth
      tiles of both operands from memory into registers, from there into shared memory
      depth of a step
        a column of the thread's tile, a row of it, in vectors
          sum                                   # in registers, spelled out by the compiler
    epilogue and stores, in vectors

With two stages there are two pairs of tiles in shared memory: while one is multiplied, the next but
one is on its way into registers. Where several blocks share a depth, a second kernel adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower import mathematics
from tilewright.compiler.lower.anchors import widened
from tilewright.compiler.lower.cuda.factors import (
    Depth,
    Factor,
    Factors,
    factors_of,
    in_singles,
)
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
from tilewright.compiler.lower.values import Value, in_type, unravelled
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.product_costs import SUMMING_THREADS
from tilewright.kernels.cuda.product_tiles import (
    RUN,
    Operand,
    Product,
    Tiles,
    held_behind,
)
from tilewright.kernels.cuda.products import SPEC, CudaProducts

Expr = Any
Lane = Callable[[Expr], Any]
"""Something of a lane."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    return lowered(ProductKernel, program, SPEC, target)


def lowered(
    kernel: type[ProductKernel], program: Program, spec: CudaProducts, target: Target
) -> Schedule:
    """The function of a spec's tiles that a kernel writes."""
    shape = spec.product(program.workload, program.candidate.forms)
    tiles = spec.tiles(shape, lambda name: int(program.settings[name]))
    made = kernel(program, shape, tiles, target.limits.static_shared_bytes)
    return program.begin(function_of(program, made.write))


@dataclass(frozen=True)
class Axis:
    """The fast or the slow axis: its extent in the result, what a block, a thread and an access of
    a thread have of it, how many neighbours a thread has, and how its operand is read."""

    name: str
    extent: int
    tile: int
    thread: int
    width: int
    pitch: int
    operand: Operand
    vector: int
    accesses: int
    read: Callable[[Expr, Expr, Depth], Factor]

    @property
    def threads(self) -> int:
        """Threads of a block along the axis."""
        return self.tile // self.thread


class ProductKernel:
    """The statements of one kernel."""

    element = SINGLE
    """What tiles and sums are made of."""

    def __init__(self, program: Program, shape: Product, tiles: Tiles, static_bytes: int) -> None:
        self.program, self.product, self.tiles = program, shape, tiles
        self.static = tiles.shared_bytes(shape) <= static_bytes
        self.reached: Expr = None
        self.steps = tiles.steps(shape)
        self.axes: tuple[Axis, ...] = ()
        self.parts: Any = None
        self.shared: Any = None

    def write(self, result: Any) -> None:
        """The whole function: one kernel, or two."""
        program = self.program
        self.result, self.factors = result, self._factors()
        self.axes = self._axes()
        program.set_anchor(self._anchor)
        self.held = self._held()
        self.final = program.operand(len(program.workload.types) - 1)
        self._launches()

    def _factors(self) -> Factors:
        return factors_of(self.program, self.product, self.tiles, in_singles(self.program))

    def _zero(self) -> Expr:
        return tirx.const(0, self.element)

    def _anchor(self, _: Any) -> Expr:
        kind = self.program.workload.step_types(self.program.workload.anchor_index)[1]
        return mathematics.converted(self.reached, kind.dtype)

    def _held(self) -> dict[int, Value]:
        """What is computed of a result on the way to it and is held in a register, by its value:
        all functions. TVM's simplifier takes very long for one of the other."""
        program, found = self.program, dict[int, Value]()
        for value in held_behind(program.workload):
            found[value] = widened(program.operand(value))
            kind = found[value].type

            def read(_: Any, value: int = value) -> Expr:
                return self.registers[value][self.lane]

            held = Value(kind, read)
            program.values[value] = in_type(held, program.workload.types[value].dtype)
        return found

    def _registers(self, count: int) -> None:
        """Room for so many results of what is held."""
        self.registers = {
            value: buffer((count,), f"value{value}", "local", held.type.dtype)
            for value, held in self.held.items()
        }

    def _axes(self) -> tuple[Axis, ...]:
        shape, tiles = self.product, self.tiles
        names = ("left", "right") if shape.along_rows else ("right", "left")
        return tuple(
            Axis(
                name=name,
                extent=extent,
                tile=tile,
                thread=thread,
                width=int(width),
                pitch=pitch,
                operand=operand,
                vector=int(tiles.vector(operand, tile)),
                accesses=accesses,
                read=getattr(self.factors, name),
            )
            for name, extent, tile, thread, width, pitch, operand, accesses in zip(
                names,
                (shape.fast, shape.slow),
                (tiles.fast, tiles.slow),
                (tiles.thread_fast, tiles.thread_slow),
                tiles.widths,
                tiles.pitches(shape),
                shape.operands,
                tiles.copied(shape),
                strict=True,
            )
        )

    # ----- launches --------------------------------------------------------------------------

    def _launches(self) -> None:
        shape, tiles = self.product, self.tiles
        if tiles.split > 1:
            whole = (tiles.split, shape.batch, shape.slow, shape.fast)
            self.parts = buffer(whole, "parts", "global", self.element)
        with launched(self.program, tiles.blocks(shape), tiles.threads) as (block, thread):
            self._block(block, thread)
        if self.parts is not None:
            count = shape.batch * shape.slow * shape.fast
            with launched(self.program, -(-count // SUMMING_THREADS), SUMMING_THREADS) as (
                block,
                thread,
            ):
                self._added(block * SUMMING_THREADS + thread, count)

    def _block(self, block: Expr, thread: Expr) -> None:
        """The work of a thread on a tile."""
        shape, tiles, simplify = self.product, self.tiles, self.program.simplify
        counts = [-(-axis.extent // axis.tile) for axis in self.axes]
        self.thread = thread
        self.matrix, slow, fast, self.part = unravelled(
            block, (shape.batch, counts[1], counts[0], tiles.split), simplify
        )
        self.first = (fast * tiles.fast, slow * tiles.slow)
        self.mine = self._places(thread)
        self._buffers()
        with unrolled(tiles.thread_fast * tiles.thread_slow, "i") as i:
            self.sums[i] = self._zero()
        self._summed()
        self._written()

    def _summed(self) -> None:
        """All steps."""
        if self.tiles.stages == 1 or self.steps == 1:
            with named(build.serial(0, self.steps), "step") as step:
                self._fetch(step)
                self._put(0)
                self._multiply(0)
        else:
            self._two_stages()

    def _places(self, thread: Expr) -> tuple[Expr, Expr]:
        """Where a thread is among those of its block, along either axis."""
        tiles, simplify = self.tiles, self.program.simplify
        fast, slow = int(tiles.lanes_fast), int(tiles.lanes_slow)
        warp, lane = simplify.split(thread, fast * slow)
        across = tiles.threads_fast // fast
        return (
            simplify(tirx.floormod(lane, fast) + tirx.floormod(warp, across) * fast),
            simplify(tirx.floordiv(lane, fast) + tirx.floordiv(warp, across) * slow),
        )

    def _buffers(self) -> None:
        tiles = self.tiles
        made = partial(buffer, kind=self.element)
        self.sums = made((tiles.thread_fast * tiles.thread_slow,), "sums", "local")
        self.read = [made((axis.thread,), f"{axis.name}_read", "local") for axis in self.axes]
        self._stages("shared" if self.static else "shared.dyn")

    def _stages(self, scope: str) -> None:
        """Tiles in shared memory, and what is on its way there."""
        tiles, made = self.tiles, partial(buffer, kind=self.element)
        self.shared = [
            [made((tiles.depth * axis.pitch,), f"{axis.name}_tile", scope) for axis in self.axes]
            for _ in range(tiles.stages)
        ]
        self.fetched = [
            made((axis.accesses * axis.vector,), f"{axis.name}_fetched", "local")
            for axis in self.axes
        ]

    def _two_stages(self) -> None:
        """Tiles of even steps lie in one place, of odd ones in the other."""
        self._fetch(0)
        self._put(0)
        self._fetch(1)
        pairs = -(-self.steps // 2)
        with named(build.serial(0, pairs), "pair") as pair:
            for turn in range(2):
                self._put(1 - turn)
                self._fetch(pair * 2 + turn + 2)
                odd = turn == 1 and self.steps % 2 == 1
                with where(pair < pairs - 1 if odd else None):
                    self._multiply(turn)

    # ----- copies ----------------------------------------------------------------------------

    def _accesses(self, axis: Axis) -> Iterator[tuple[Expr, Expr, Expr, Expr]]:
        """Within a loop over a thread's accesses to a tile: the number of one, the place along the
        axis and the depth where it begins, and whether there is one, None where there always is."""
        tiles, simplify = self.tiles, self.program.simplify
        chunks = tiles.depth * axis.tile // axis.vector
        with unrolled(axis.accesses, "access") as access:
            simplify.announce([access], [axis.accesses])
            number = access * tiles.threads + self.thread
            if axis.operand.along_depth:
                rest, within = simplify.split(number, RUN // axis.vector)
                outer, place = simplify.split(rest, axis.tile)
                depth = outer * RUN + within * axis.vector
            else:
                depth, place = simplify.split(number, axis.tile // axis.vector)
                place = place * axis.vector
            there = number < chunks if axis.accesses * tiles.threads > chunks else None
            yield access, place, depth, there

    def _fetch(self, step: Expr) -> None:
        """What a thread copies of both tiles of a step, from memory into registers; zero beyond
        the extents."""
        number = self.part * self.steps + step
        for axis, first, into in zip(self.axes, self.first, self.fetched, strict=True):
            for access, place, depth, there in self._accesses(axis):
                with self._lanes(axis) as lane:
                    value, asked = self._factor(axis, number, first + place, depth, lane)
                    if asked := asked + ([] if there is None else [there]):
                        value = tirx.if_then_else(tirx.all(*asked), value, self._zero())
                    into[access * axis.vector + lane] = value

    def _lanes(self, axis: Axis) -> AbstractContextManager[Expr]:
        """The elements of an access."""
        return elements(axis.vector)

    def _factor(self, axis: Axis, number: Expr, at: Expr, depth: Expr, lane: Expr) -> Factor:
        """A lane of what an access copies: its value, and the conditions under which it is not
        zero."""
        inside = [at < axis.extent] if axis.extent % axis.tile else []
        inside += self.factors.inside(number, depth)
        value, conditions = self._read(axis, at, (number, depth), lane)
        return value, inside + conditions

    def _read(self, axis: Axis, at: Expr, depth: tuple[Expr, Expr], lane: Expr) -> Factor:
        """One element of an access that begins so deep in a step: `depth` is both."""
        along = axis.operand.along_depth
        k = self.factors.place(*depth, lane if along else 0)
        return axis.read(self.matrix, at + (0 if along else lane), k)

    def _put(self, stage: int) -> None:
        """What was fetched, into shared memory."""
        for axis, source, tile in zip(self.axes, self.fetched, self.shared[stage], strict=True):
            for access, place, depth, there in self._accesses(axis):
                along = axis.operand.along_depth
                with (
                    where(there),
                    elements(axis.vector, spelled=along) as lane,
                ):
                    line, at = (depth + lane, place) if along else (depth, place + lane)
                    tile[line * axis.pitch + at] = source[access * axis.vector + lane]

    # ----- sums ------------------------------------------------------------------------------

    def _at(self, axis: int, vector: Expr) -> Expr:
        """Where a thread's vector lies in the tile of its block."""
        it = self.axes[axis]
        return vector * (it.threads * it.width) + self.mine[axis] * it.width

    def _multiply(self, stage: int) -> None:
        """Add a step to the sums."""
        tiles = self.tiles
        with unrolled(tiles.depth, "k") as k:
            for number, (axis, tile, into) in enumerate(
                zip(self.axes, self.shared[stage], self.read, strict=True)
            ):
                with (
                    unrolled(axis.thread // axis.width, "vector") as vector,
                    elements(axis.width) as lane,
                ):
                    at = k * axis.pitch + self._at(number, vector) + lane
                    into[vector * axis.width + lane] = tile[at]
            fast, slow = self.read
            with unrolled(tiles.thread_slow, "j") as j, unrolled(tiles.thread_fast, "i") as i:
                at = j * tiles.thread_fast + i
                self.sums[at] = self._added_to(self.sums[at], slow[j], fast[i])

    def _added_to(self, total: Expr, slow: Expr, fast: Expr) -> Expr:
        """A sum with the product of two elements."""
        return total + slow * fast

    # ----- results ---------------------------------------------------------------------------

    def _written(self) -> None:
        """The sums of a thread, with the epilogue or as one part of several."""
        shape, (fast, slow) = self.product, self.axes
        together = min(fast.width, shape.vector)
        with (
            unrolled(slow.thread, "j") as j,
            unrolled(fast.thread // together, "vector") as vector,
        ):
            outer, inner = self.program.simplify.split(j, slow.width)
            at_slow = self.first[1] + self._at(1, outer) + inner
            outer, inner = tirx.floordiv(vector * together, fast.width), vector * together
            at_fast = self.first[0] + self._at(0, outer) + tirx.floormod(inner, fast.width)
            inside = (
                at_slow < slow.extent if slow.extent % slow.tile else None,
                at_fast < fast.extent if fast.extent % fast.tile else None,
            )
            index = partial(self._index, self.matrix, at_slow)
            beyond = self.factors.beyond(self.matrix, index(at_fast))
            first = j * fast.thread + vector * together
            with where(*inside, *beyond):
                if self.parts is None:
                    self._results(
                        together,
                        lambda lane: self.sums[first + lane],
                        lambda lane: index(at_fast + lane),
                    )
                    return
                with elements(together) as lane:
                    at = (self.part, self.matrix, at_slow, at_fast + lane)
                    self.parts[at] = self.sums[first + lane]

    def _index(self, matrix: Expr, slow: Expr, fast: Expr) -> list[Expr]:
        row, col = (fast, slow) if self.product.along_rows else (slow, fast)
        return self.factors.index(matrix, row, col)

    def _results(self, count: int, total: Lane, index: Lane) -> None:
        """So many results that lie side by side, of what was summed up for each. What is held is
        computed one by one: TVM forgets how many there are of it in a vector."""
        self._registers(count)
        for value, computed in self.held.items():
            with elements(count, spelled=True) as lane:
                self.reached, self.lane = total(lane), lane
                self.registers[value][lane] = computed.read(index(lane))
        self._stored(count, total, index)

    def _stored(self, count: int, total: Lane, index: Lane) -> None:
        with elements(count) as lane:
            self.reached, self.lane = total(lane), lane
            at = index(lane)
            self.result[tuple(at)] = self.final.read(at)

    def _added(self, number: Expr, count: int) -> None:
        """One result of the second kernel."""
        shape, simplify = self.product, self.program.simplify
        matrix, slow, fast = unravelled(number, (shape.batch, shape.slow, shape.fast), simplify)
        index = self._index(matrix, slow, fast)
        with where(
            number < count if count % SUMMING_THREADS else None,
            *self.factors.beyond(matrix, index),
        ):
            total = buffer((1,), "total", "local", self.element)
            total[0] = self._zero()
            with named(build.serial(0, self.tiles.split), "part") as part:
                total[0] = total[0] + self.parts[part, matrix, slow, fast]
            self._results(1, lambda _: total[0], lambda _: index)

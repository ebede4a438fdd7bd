"""Kernels that compute each element of their result from a few elements.

block: its elements                 or a tile of two axes
  unrolled: vectors of a thread       in the operand's order: compute, keep in shared memory
    vector: compute, write            barrier
                                      in the result's order: write
"""

from __future__ import annotations

from math import prod
from typing import Any

from msgspec import structs
from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower import bindings, mathematics
from tilewright.compiler.lower.anchors import lrn_value
from tilewright.compiler.lower.cuda.threads import Writer, integer, kept, read
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Index, Value, in_type, unravelled
from tilewright.core.element_types import element_type
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.kernels.cuda.composing import costly_values
from tilewright.kernels.cuda.images import in_memory
from tilewright.kernels.cuda.stream import Tile, stored_value, tile_of

Expr = tirx.Expr


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel."""
    there = turned(program)
    writer, settings = Writer(there), program.settings
    with writer.function() as result:
        value = composed(writer)
        if settings["tiled"]:
            tile = tile_of(there.workload, settings["threads"] * settings["vectors"])
            assert tile is not None
            _tiled(writer, value, result, tile)
        else:
            _streamed(writer, value, result)
    made = writer.schedule()
    program.start = there.start
    return made


def turned(program: Program) -> Program:
    """The program of the same workload on tensors as they lie in memory."""
    forms = (PLAIN,) * len(program.candidate.forms)
    workload = in_memory(program.workload, program.candidate.forms)
    return Program(workload, structs.replace(program.candidate, forms=forms))


def composed(writer: Writer) -> Value:
    """The value whose elements lie in memory in the order of the result."""
    program = writer.program
    workload, anchor = program.workload, program.workload.anchor
    if anchor is not None:
        data = program.operand(anchor.inputs[0])
        program.set_anchor(lambda at: _local_response(data, dict(anchor.attributes), at))
    for number in sorted(costly_values(workload)):
        program.values[number] = kept(writer, program.operand(number))
    return program.operand(stored_value(workload))


def _local_response(data: Value, named: dict[str, Any], index: Index) -> Expr:
    """LRN of one element: the squares of its neighbours along the channels."""
    kind = element_type(data.type.dtype).accumulator
    wide = in_type(data, kind)
    n, channel, *place = index
    zero, total = tirx.const(0, kind), tirx.const(0, kind)
    for tap in range(named["size"]):
        near = channel + (tap - (named["size"] - 1) // 2)
        at = wide.read([n, near, *place])
        inside = tirx.all(near >= 0, near < data.type.shape[1])
        total = total + bindings.shared(tirx.if_then_else(inside, at, zero), lambda x: x * x)
    value = bindings.shared(total, lambda t: lrn_value(named, wide.read(index), t))
    return mathematics.converted(value, data.type.dtype)


def _streamed(writer: Writer, value: Value, result: tirx.Buffer) -> None:
    """Vectors side by side; the last block, where it is not full, goes by single elements."""
    program, settings = writer.program, writer.program.settings
    threads, lanes, vectors = settings["threads"], settings["vector"], settings["vectors"]
    elements, shape = prod(value.type.shape), value.type.shape
    chunk = threads * lanes * vectors

    def put(at: Expr) -> None:
        element = value.read(unravelled(at, shape, program.simplify))
        writer.store_flat(result, element, at)

    with writer.launch(-(-elements // chunk), threads) as (block, thread):

        def whole() -> None:
            with writer.unrolled(vectors) as turn:
                first = (block * vectors + turn) * (threads * lanes) + thread * lanes
                with writer.vector(lanes) as lane:
                    put(first + lane)

        def rest() -> None:
            with writer.serial(vectors * lanes) as turn:
                at = block * chunk + turn * threads + thread
                with writer.when(at < elements):
                    put(at)

        if elements % chunk == 0:
            whole()
        elif elements < chunk:
            rest()
        else:
            writer.either(block < elements // chunk, whole, rest)


def _tiled(writer: Writer, value: Value, result: tirx.Buffer, tile: Tile) -> None:
    """A tile through shared memory, `tile.pitch` apart so that its columns lie in all banks."""
    program, threads = writer.program, writer.program.settings["threads"]
    shape, elements = value.type.shape, tile.across * tile.along
    counts = [
        -(-extent // {tile.axis: tile.across, tile.fast: tile.along}.get(axis, 1))
        for axis, extent in enumerate(shape)
    ]
    kind = value.type.dtype
    turns = -(-elements // threads)
    with writer.launch(prod(counts), threads) as (block, thread):
        kept_tile = writer.shared(tile.along * tile.pitch, kind, "tile")
        corner = unravelled(block, counts, program.simplify)
        corner[tile.axis] = corner[tile.axis] * tile.across
        corner[tile.fast] = corner[tile.fast] * tile.along

        def place(across: Expr, along: Expr) -> list[Expr]:
            at = list(corner)
            at[tile.axis], at[tile.fast] = at[tile.axis] + across, at[tile.fast] + along
            return at

        def inside(number: Expr, at: Index) -> list[Expr | bool]:
            sides = ((tile.axis, tile.across), (tile.fast, tile.along))
            return [
                elements % threads == 0 or number < elements,
                *(shape[a] % size == 0 or at[a] < shape[a] for a, size in sides),
            ]

        with writer.unrolled(turns) as turn:
            number = turn * threads + thread
            along, across = program.simplify.split(number, tile.across)
            at = place(across, along)
            with writer.when(*inside(number, at)):
                writer.store(kept_tile, value.read(at), [along * tile.pitch + across])
        writer.barrier()
        with writer.unrolled(turns) as turn:
            number = turn * threads + thread
            across, along = program.simplify.split(number, tile.along)
            at = place(across, along)
            flat: Expr = integer(0)
            for position, extent in zip(at, shape, strict=True):
                flat = flat * extent + position
            with writer.when(*inside(number, at)):
                element = read(kept_tile, along * tile.pitch + across)
                writer.store_flat(result, element, flat)

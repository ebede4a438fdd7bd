"""The kernel of a recurrent layer, its loops written out.

step
  parallel (block of columns)           # `share` = columns; else tiles of sequences, outermost
    tile of sequences
      depth                             # the state, broadcast
        gate, sequence, vector          # register tile, spelled out
      activations, the next state
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from math import gcd
from typing import Any

from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as build

from tilewright.compiler.lower import bindings, elementwise, mathematics
from tilewright.compiler.lower.loops import spread
from tilewright.compiler.lower.program import Program
from tilewright.compiler.lower.values import Value, in_type
from tilewright.core.forms import PLAIN
from tilewright.core.targets import Resources, Target
from tilewright.graph.network import Attributes, TensorType, attributes
from tilewright.graph.operators.recurrent import Activation, activations_of
from tilewright.graph.workload import Step
from tilewright.kernels.recurrent import ALONE, COLUMNS, SEQUENCES, recurrence

Expr = tirx.Expr
_PLAINEST = {"block": 1, "tile_rows": 1, "share": ALONE}
"""Settings for every layer."""


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build the kernel, and schedule what comes behind the states."""
    lanes = target.lanes(program.workload.computed_in)
    loop = _Loop(program, program.settings, lanes, resources.threads)
    if len(program.workload.steps) == 1:
        states = loop.states(program.workload.result.dtype)
        return program.begin(te.create_prim_func([*program.tensors, states]))
    schedule = program.schedule(layer_states(program, loop).read)
    for name in ("result", *loop.staged):
        spread(schedule, schedule.get_sblock(name), lanes, resources.threads)
    return schedule


def layer_states(program: Program, loop: _Loop | None = None) -> Value:
    """The anchor's result, computed by one thread in the plainest way if by no other loop."""
    result = program.workload.step_types(program.workload.anchor_index)[1]
    loop = loop or _Loop(program, _PLAINEST, 1, 1)
    states = loop.states(loop.kind)
    kept = Value(TensorType(result.shape, loop.kind), lambda index: states(*index))
    return in_type(kept, result.dtype)


class _Loop:
    """The statements of one layer. A state lies in a buffer [2, batch, hidden], of which a step
    reads one half and writes the other."""

    def __init__(self, program: Program, settings: Any, lanes: int, threads: int) -> None:
        self.program, self.staged = program, list[str]()
        self.layer = layer = recurrence(program.workload)
        self.named = program.workload.anchor.named
        self.functions = activations_of(str(self.named["activations"]))
        self.kind = program.workload.computed_in
        self.packed = layer.operands["weights"] not in program.values
        self.block, self.rows = settings["block"], settings["tile_rows"]
        self.lanes = gcd(self.block, lanes)
        self.starts = layer.starts(self.block)
        self.tiles = -(-layer.batch // self.rows)
        share = settings["share"]
        pieces = {ALONE: 1, COLUMNS: len(self.starts)}.get(share, self.tiles)
        several = threads > 1 and pieces > 1
        self.by_columns = share == COLUMNS and several
        self.by_tiles = share == SEQUENCES and several
        self.operands: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}

    def states(self, dtype: str) -> te.Tensor:
        """The layer as a stage, in an element type; operands that are computed become stages."""
        program, tensors = self.program, list[te.Tensor]()
        for name, value in self.layer.operands.items():
            if value >= len(program.tensors):
                self.staged.append(name)
                computed = in_type(program.operand(value), self.kind)
                tensors.append(program.stage(computed, PLAIN, name))
            else:
                tensors.append(program.tensors[value])

        def emit(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            with IRBuilder() as builder:
                with build.seq_scope():
                    self._emit([build.buffer_proxy(each) for each in (*inputs, *outputs)])
                return builder.get().body

        shape = program.workload.step_types(program.workload.anchor_index)[1].shape
        return te.extern([shape], tensors, emit, name="states", dtype=[dtype])

    def _emit(self, buffers: Sequence[Any]) -> None:
        layer = self.layer
        *operands, self.result = buffers
        self.operands = dict(zip(layer.operands, operands, strict=True))
        whole = (layer.batch, layer.hidden)
        for name in layer.states:
            self.kept[name] = self._buffer((2, *whole), "global")
        if len(layer.phases) > 1:
            self.kept |= {name: self._buffer(whole, "global") for name in ("update", "reset")}
        for name in layer.states:
            with build.serial(0, layer.batch) as row, build.serial(0, layer.hidden) as column:
                given = self.read(name, row, column) if name in self.operands else self.constant(0)
                self.kept[name][0, row, column] = given
        self._steps()
        for place, name in enumerate(layer.states[: layer.finals]):
            with build.serial(0, layer.batch) as row, build.serial(0, layer.hidden) as column:
                last = self.kept[name][layer.steps % 2, row, column]
                self.write(layer.steps + place, row, column, last)

    def _steps(self) -> None:
        """Threads that divide the columns meet after every phase."""
        layer, blocks, tiles = self.layer, len(self.starts), self.tiles
        phases = range(len(layer.phases))
        if self.by_tiles:
            with build.parallel(0, tiles) as tile, build.serial(0, layer.steps) as step:
                for phase in phases:
                    with build.serial(0, blocks) as block:
                        self._part(step, phase, block, tile)
            return
        with self._pragma("parallel_launch_point"), build.serial(0, layer.steps) as step:
            for phase in phases:
                around = build.parallel if self.by_columns else build.serial
                meeting = self._pragma("parallel_barrier_when_finish")
                with meeting, around(0, blocks) as block, build.serial(0, tiles) as tile:
                    self._part(step, phase, block, tile)

    def _pragma(self, name: str) -> Any:
        return build.attr(0, f"pragma_{name}", tirx.const(1)) if self.by_columns else nullcontext()

    def _part(self, step: Expr, phase: int, block: Expr, tile: Expr) -> None:
        """A tile of sequences by a block of columns of a phase's gates."""
        layer, turn = self.layer, tirx.floormod(step, 2)
        time = layer.steps - 1 - step if self.named["reverse"] else step
        first = tirx.min(block * self.block, layer.hidden - self.block)
        row = tirx.min(tile * self.rows, layer.batch - self.rows)
        gates = len(layer.phases[phase])
        sums = self._buffer((gates, self.rows, self.block), "local")
        self._multiply(sums, phase, block, first, row, turn)
        for inner in range(self.rows):
            for start in range(0, self.block, self.lanes):
                with build.vectorized(0, self.lanes) as lane:
                    at = (time, turn, row + inner, first + start + lane)
                    place = _Place(self, at, sums, (inner, start + lane))
                    _CELLS[layer.cell][phase](place)

    def _multiply(
        self, sums: Any, phase: int, block: Expr, first: Expr, row: Expr, turn: Expr
    ) -> None:
        layer, gates = self.layer, self.layer.phases[phase]
        tile = [(i, start) for i in range(len(gates)) for start in range(0, self.block, self.lanes)]
        for inner in range(self.rows):
            for gate, start in tile:
                with build.vectorized(0, self.lanes) as lane:
                    sums[gate, inner, start + lane] = self.constant(0)
        source = self.kept["reset" if phase else "state"]
        with build.serial(0, layer.hidden) as depth:
            for inner in range(self.rows):
                value = source[(*(() if phase else (turn,)), row + inner, depth)]
                for gate, start in tile:
                    with build.vectorized(0, self.lanes) as lane:
                        weight = self._weight(phase, block, first, depth, gate, start + lane)
                        total = sums[gate, inner, start + lane]
                        sums[gate, inner, start + lane] = total + value * weight

    def _weight(
        self, phase: int, block: Expr, first: Expr, depth: Expr, gate: int, column: Expr
    ) -> Expr:
        layer = self.layer
        gates = layer.phases[phase]
        if not self.packed:
            return self.read("weights", depth, gates[gate] * layer.hidden + first + column)
        before = len(self.starts) * layer.hidden * gates[0] * self.block
        place = ((block * layer.hidden + depth) * len(gates) + gate) * self.block
        return self.read("weights", before + place + column)

    def read(self, name: str, *index: Expr) -> Expr:
        """An element of an operand."""
        return mathematics.converted(self.operands[name][index], self.kind)

    def write(self, time: Expr, row: Expr, column: Expr, value: Expr) -> None:
        """An element of the result."""
        self.result[time, row, column] = mathematics.converted(value, str(self.result.dtype))

    def _buffer(self, shape: tuple[int, ...], scope: str) -> Any:
        return build.buffer_proxy(build.alloc_buffer(shape, self.kind, scope=scope))

    def constant(self, value: float) -> Expr:
        """A number of the type that the kernel computes in."""
        return tirx.const(value, self.kind)


class _Place:
    """A vector of one sequence's columns in one step; `place[i]` is what there is of gate `i`."""

    def __init__(
        self, loop: _Loop, at: tuple[Expr, Expr, Expr, Expr], sums: Any, inside: tuple[Any, ...]
    ) -> None:
        self.loop, self._sums, self._inside = loop, sums, inside
        self._time, self._turn, *self.position = at

    def __getitem__(self, gate: int) -> Expr:
        return self._sums[(gate, *self._inside)]

    def __setitem__(self, gate: int, value: Expr) -> None:
        self._sums[(gate, *self._inside)] = value

    def arrived(self, gate: int) -> Expr:
        """What came from the layer's input."""
        row, column = self.position
        return self.loop.read("gates", self._time, row, gate * self.loop.layer.hidden + column)

    def before(self, name: str) -> Expr:
        """A state that the step began with."""
        return self.loop.kept[name][(self._turn, *self.position)]

    def peeped(self, gate: int, memory: Expr) -> Expr:
        """Sum and input of a gate that looks at the memory, too."""
        total = self[gate] + self.arrived(gate)
        if "peepholes" not in self.loop.operands:
            return total
        place = gate * self.loop.layer.hidden + self.position[1]
        return total + self.loop.read("peepholes", place) * memory

    def function(self, number: int, x: Expr) -> Expr:
        """An activation of what is clipped before."""
        limit = self.loop.named["clip"]
        if limit:
            named = attributes(minimum=-limit, maximum=limit)
            x = _elementwise("clip", x, named)
        return activated(self.loop.functions[number], x)

    def finish(self, *later: Expr) -> None:
        """The states after the step; behind the end of a sequence they stay, and its row is 0."""
        loop, (row, _) = self.loop, self.position
        going_on = None
        if "lengths" in loop.operands:
            going_on = self._time < loop.operands["lengths"][row]
        for name, value in zip(loop.layer.states, later, strict=True):
            kept = value if going_on is None else tirx.Select(going_on, value, self.before(name))
            loop.kept[name][(1 - self._turn, *self.position)] = kept
        state = later[0] if going_on is None else tirx.Select(going_on, later[0], loop.constant(0))
        loop.write(self._time, *self.position, state)


def _lstm(place: _Place, *, coupled: bool = False) -> None:
    memory, one = place.before("memory"), place.loop.constant(1)
    place[0] = place.function(0, place.peeped(0, memory))
    place[2] = one - place[0] if coupled else place.function(0, place.peeped(2, memory))
    place[3] = place.function(1, place[3] + place.arrived(3))
    place[2] = place[2] * memory + place[0] * place[3]
    place[1] = place.function(0, place.peeped(1, place[2]))
    place[1] = place[1] * activated(place.loop.functions[2], place[2])
    place.finish(place[1], place[2])


def _gru_gates(place: _Place) -> None:
    """The product with the reset state has to wait for all of it."""
    kept, (row, column) = place.loop.kept, place.position
    for gate in (0, 1):
        place[gate] = place.function(0, place[gate] + place.arrived(gate))
    kept["update"][row, column] = place[0]
    kept["reset"][row, column] = place[1] * place.before("state")


def _gru_state(place: _Place) -> None:
    place[0] = place.function(1, place[0] + place.arrived(2))
    _mixed(place, place.loop.kept["update"][tuple(place.position)], 0)


def _gru_reset_after(place: _Place) -> None:
    for gate in (0, 1):
        place[gate] = place.function(0, place[gate] + place.arrived(gate))
    if "bias" in place.loop.operands:
        place[2] = place[2] + place.loop.read("bias", place.position[1])
    place[2] = place.function(1, place.arrived(2) + place[1] * place[2])
    _mixed(place, place[0], 2)


def _mixed(place: _Place, update: Expr, fresh: int) -> None:
    one = place.loop.constant(1)
    place[fresh] = (one - update) * place[fresh] + update * place.before("state")
    place.finish(place[fresh])


def _rnn(place: _Place) -> None:
    place[0] = place.function(0, place[0] + place.arrived(0))
    place.finish(place[0])


_CELLS: dict[str, tuple[Callable[[_Place], None], ...]] = {
    "lstm": (_lstm,),
    "lstm_coupled": (partial(_lstm, coupled=True),),
    "gru": (_gru_gates, _gru_state),
    "gru_reset_after": (_gru_reset_after,),
    "rnn": (_rnn,),
}
"""What becomes of the sums of each phase."""


def activated(function: Activation, x: Expr) -> Expr:
    """An activation as an expression."""
    values = [tirx.const(value, mathematics.dtype(x)) for value in function.parameters]
    match function.name:
        case "affine":
            return x * values[0] + values[1]
        case "scaled_tanh":
            return mathematics.tanh(x * values[1]) * values[0]
        case "softsign":
            return bindings.shared(
                x, lambda v: v / (tirx.const(1, mathematics.dtype(v)) + tirx.abs(v))
            )
        case _:
            return _elementwise(function.name, x, attributes(**function.named))


def _elementwise(name: str, x: Expr, named: Attributes) -> Expr:
    return elementwise.expression(Step(operator=name, inputs=(0,), attributes=named), [x])

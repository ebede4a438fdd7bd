"""Prefetches: they ask for the next panel, all of it, and change no result."""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from math import prod
from typing import Any

import pytest
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_visit

from helpers.fakes.placements import altered, with_cache
from helpers.kernels.convolutions import conv, forms_for
from helpers.kernels.one_kernel import PLACEMENT, all_settings, step, workload
from helpers.kernels.packed_kernel import kernel_error
from tilewright.compiler.build import kernel_module, rendered
from tilewright.compiler.prefetch import AHEAD, TILE, with_prefetches
from tilewright.core.forms import blocked
from tilewright.core.records import Candidate, Settings
from tilewright.graph.workload import Workload
from tilewright.kernels import conv2d_direct, matrix_products
from tilewright.kernels.base import Implementation
from tilewright.kernels.conv2d_winograd import TILES_OF_2, TILES_OF_4
from tilewright.testing.implementations import plain

OPERATIONS = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.Min: min,
    tirx.Max: max,
}
LANES = PLACEMENT.target.lanes("float32")
LINE = 16
NEAR = altered(PLACEMENT, **with_cache(PLACEMENT.target, 2, 64))
"""A machine whose second cache holds no weights at all, so that all are fetched ahead."""


def dense(rows: int, depth: int, columns: int) -> Workload:
    task = workload([(rows, depth), (depth, columns)], step("dense", 0, 1))
    weight = replace(task.arguments[1], role="constant")
    return replace(task, arguments=(task.arguments[0], weight))


CONV1 = conv((1, 2 * LANES, 4, 4), 8 * LANES, (1, 1), "b")
CONV3 = conv((1, 2 * LANES, 6, 6), 4 * LANES, (3, 3), "", padding=(1, 1, 1, 1))
DENSE = dense(12, 32, 8 * LANES)
CASES: dict[str, tuple[Implementation, Workload, Settings]] = {
    "panel": (
        conv2d_direct.SPEC,
        CONV1,
        {"order": "channels", "tile_width": 2, "tile_out": 2, "cache_chunks": 0},
    ),
    "rows of a panel": (
        conv2d_direct.SPEC,
        CONV3,
        {"order": "channels", "tile_width": 3, "tile_height": 2, "tile_out": 2, "cache_chunks": 0},
    ),
    "few tiles": (
        conv2d_direct.SPEC,
        CONV3,
        {"order": "rows", "tile_width": 3, "tile_height": 2, "tile_out": 2, "cache_chunks": 0},
    ),
    "positions": (TILES_OF_4, CONV3, {"order": "channels", "tile_rows": 1, "strip": 0}),
    "square": (TILES_OF_2, CONV3, {"order": "channels", "tile_rows": 2, "strip": 0}),
    "dense": (
        matrix_products.DENSE,
        DENSE,
        {"order": "columns", "tile_rows": 4, "block": 2 * LANES},
    ),
}


def candidates(name: str) -> list[Candidate]:
    """All settings of a case that are as it asks."""
    spec, task, asked = CASES[name]
    blocks = spec is not matrix_products.DENSE
    forms = forms_for(task, blocked(LANES), blocked(LANES)) if blocks else plain(task)
    return [
        Candidate(implementation=spec.name, settings=tuple(settings.items()), forms=forms)
        for settings in all_settings(task, spec.name, forms)
        if asked.items() <= settings.items()
    ]


def lines_of(weights: Any, place: int, distance_bytes: int = 0) -> int:
    assert str(weights.dtype) == "float32"
    return (place + distance_bytes // 4) // LINE


class Run:
    """Executes a function's loops for what is fetched and read of its weights."""

    def __init__(self, function: Any, weights: Any) -> None:
        self.weights = weights
        self.events: list[tuple[str, int]] = []
        self._values: dict[str, int] = {}
        self._run(function.body)

    def _number(self, index: Any) -> int:
        if isinstance(index, tirx.IntImm):
            return int(index)
        if isinstance(index, tirx.Var):
            return self._values[index.name]
        return OPERATIONS[type(index)](self._number(index.a), self._number(index.b))

    def _place(self, indices: Any) -> int:
        place = 0
        for extent, index in zip(self.weights.shape, indices, strict=True):
            place = place * int(extent) + self._number(index)
        return place

    def _run(self, body: Any) -> None:
        callbacks = [
            (tirx.For, self._loop),
            (SBlockRealize, self._block),
            (tirx.Evaluate, self._fetch),
            (TensorLoad, self._read),
        ]
        structural_visit(body, callbacks)

    def _loop(self, node: Any, visitor: Any) -> None:
        lanes = tirx.ForKind(node.kind) == tirx.ForKind.VECTORIZED
        for value in range(0, int(node.extent), LANES if lanes else 1):
            self._values[node.loop_var.name] = value
            visitor.visit(node.body)

    def _block(self, node: Any, visitor: Any) -> None:
        numbers = [self._number(value) for value in node.iter_values]
        axes = zip(node.block.iter_vars, numbers, strict=True)
        self._values.update((axis.var.name, number) for axis, number in axes)
        visitor.visit(node.block.body)

    def _fetch(self, node: Any, _visitor: Any) -> None:
        if "llvm.prefetch" in str(node):
            start, offset = node.value.args[1].args
            place = self._place(start.args[0].indices)
            self.events.append(("fetched", lines_of(self.weights, place, self._number(offset))))

    def _read(self, load: Any, _visitor: Any) -> None:
        if load.source.same_as(self.weights):
            self.events.append(("read", lines_of(self.weights, self._place(load.indices))))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.on_request if name == "rows of a panel" else ())
        for name in CASES
    ],
)
def test_the_next_panel_is_fetched_whole_and_in_time(name: str) -> None:
    _, task, _ = CASES[name]
    found = candidates(name)
    marked = 0
    for candidate in found[:: max(1, len(found) // 3)][:3]:
        module = kernel_module(task, candidate, NEAR.target, NEAR.resources)
        distances = re.findall(rf'"{AHEAD}": \[1, (\d+)\]', module.script())
        if not distances:
            continue
        function = with_prefetches(module)["main"]
        events = Run(function, function.params[1]).events
        panel = int(distances[0]) // LINE
        known: set[int] = set()
        cold: set[int] = set()
        for kind, line in events:
            if kind == "read" and line not in known:
                cold.add(line)
            known.add(line)
        read = {line for kind, line in events if kind == "read"}
        assert len(read) * LINE == prod(int(extent) for extent in function.params[1].shape)
        assert len(cold) <= panel < len(read)
        assert len(known - read) <= panel
        marked += 1
    assert marked


@pytest.mark.parametrize("name", CASES)
def test_results_stay_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, task, asked = CASES[name]
    for candidate in candidates(name)[:3]:
        assert "prefetch" in rendered(task, candidate, NEAR.target, NEAR.resources, "asm")
        error = kernel_error(task, spec, candidate.forms, dict(candidate.settings), NEAR)
        assert error <= spec.error_bound(task)


def test_weights_at_hand_are_not_fetched() -> None:
    module = kernel_module(CONV1, candidates("panel")[0], PLACEMENT.target, PLACEMENT.resources)
    assert AHEAD not in module.script() and TILE not in module.script()
    assert with_prefetches(module)["main"].body.same_as(module["main"].body)


def test_marks_vanish() -> None:
    module = kernel_module(CONV1, candidates("panel")[0], NEAR.target, NEAR.resources)
    text = with_prefetches(module).script()
    assert AHEAD in module.script() and "llvm.prefetch" in text
    assert AHEAD not in text and TILE not in text


def test_register_tiles_are_not_taken_from_a_pool() -> None:
    settings = next(s for s in candidates("panel") if s.setting("tile_width") == 2)
    assert "AllocWorkspace" not in rendered(
        CONV1, settings, PLACEMENT.target, PLACEMENT.resources, "asm"
    )

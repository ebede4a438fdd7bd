"""What a task is at each level, who competes for it, and what becomes of an operator's setting."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from helpers.fakes.levels import DIRECT, WINOGRAD, convolution, relu, task, tasks
from helpers.fakes.measuring import PLACEMENT
from tilewright.core.budget import Limit
from tilewright.core.errors import UsageError
from tilewright.core.forms import PLAIN
from tilewright.core.records import Candidate
from tilewright.graph.tasks import Task, bare_anchor
from tilewright.insight.studies import int8_tasks
from tilewright.kernels.int8_case import int8_case, int8_forms
from tilewright.kernels.registry import implementation
from tilewright.kernels.spaces import search_space
from tilewright.models.loaded import ModelOptions
from tilewright.search.levels import (
    LEVELS,
    GraphLevel,
    OptimizeRequest,
    Scope,
    anchor_group,
    bare_task,
    bare_tasks,
    carried_over,
    checked_level,
    level_name,
)

FUSED = task(convolution("add", "relu"))
RESIDUAL = task(convolution("add", "plus", "relu"))


def every(one: Task) -> list[Candidate]:
    space = search_space(one.workload, one.forms, PLACEMENT)
    numbers = space.listed
    assert numbers is not None
    return [space.candidate(int(number)) for number in numbers]


EVERY = every(FUSED)


def test_levels_by_name() -> None:
    assert [checked_level(name) for name in LEVELS] == ["op", "subgraph"]
    with pytest.raises(UsageError, match="unknown level 'subgraf'") as caught:
        checked_level("subgraf")
    assert "subgraph" in str(caught.value.hint)


def test_the_graph_is_a_level_too() -> None:
    graph = GraphLevel(solver="exact")
    assert checked_level(graph) is graph and checked_level("graph") == GraphLevel()
    assert [level_name(level) for level in ("op", "subgraph", graph)] == ["op", "subgraph", "graph"]


@pytest.mark.parametrize(
    ("command", "level", "count", "only_predicted", "searched"),
    [
        ("tune", GraphLevel(), 0, True, "subgraph"),
        ("tune", GraphLevel(), 1, False, "subgraph"),
        ("optimize", GraphLevel(), 0, False, "subgraph"),
        ("tune", "op", 0, False, "op"),
        ("tune", "subgraph", 0, False, "subgraph"),
    ],
)
def test_what_a_request_asks_for(
    command: str, level: Scope, count: int, only_predicted: bool, searched: str
) -> None:
    request = OptimizeRequest(
        model="m", options=ModelOptions(), budget=Limit(measurements=count), folder=Path("o"),
        max_error=1e-4, seed=0, level=level, command=command,
    )  # fmt: skip
    assert request.only_predicted is only_predicted
    assert request.searched_level == searched
    assert request.graph is (level if isinstance(level, GraphLevel) else None)


def test_all_implementations_of_an_anchor_compete_inside_the_subgraph() -> None:
    """The seed's case 1: the space of the fused task holds the settings of every implementation,
    and each sees the real epilogue and layouts."""
    names = {candidate.implementation for candidate in EVERY}
    assert {DIRECT, WINOGRAD} <= names
    assert {candidate.forms for candidate in EVERY} == {FUSED.forms}
    space = search_space(FUSED.workload, FUSED.forms, PLACEMENT)
    for name in (DIRECT, WINOGRAD):
        settings_of = {c.settings for c in EVERY if c.implementation == name}
        assert len(settings_of) > 10
    assert all(space.candidate(space.number(c) or 0) == c for c in EVERY)


def test_the_bare_task_is_the_anchor_in_its_layouts() -> None:
    bare = bare_task(RESIDUAL)
    assert [step.operator for step in bare.workload.steps] == ["conv2d"]
    assert bare.workload.arguments == RESIDUAL.workload.arguments[:2]
    assert bare.forms == (RESIDUAL.forms[0], PLAIN, RESIDUAL.forms[-1])
    assert bare.key == (bare.workload.key, bare.forms)
    assert (bare.name, bare.count) == (RESIDUAL.name, RESIDUAL.count)


def test_without_an_anchor_the_task_stays() -> None:
    plain = task(relu())
    assert bare_task(plain) == plain
    assert anchor_group(plain) == ""
    assert bare_anchor(plain.workload, plain.forms) is None


def test_a_group_shares_anchor_and_layouts() -> None:
    assert anchor_group(FUSED) == anchor_group(RESIDUAL) == anchor_group(task(convolution())) != ""
    assert anchor_group(task(convolution("add", "relu"), form=PLAIN)) != anchor_group(FUSED)
    assert anchor_group(task(convolution("add", "relu", extent=12))) != anchor_group(FUSED)


def test_an_anchor_that_many_share_is_one_bare_task() -> None:
    other = task(convolution("relu", filters=64))
    found = bare_tasks(tasks(replace(FUSED, count=2), replace(RESIDUAL, count=3), other))
    assert [one.count for one in found.values()] == [5, 1]
    assert found[bare_task(FUSED).key].workload == bare_task(RESIDUAL).workload


def test_a_setting_is_carried_over_in_the_layouts_of_the_task() -> None:
    bare = bare_task(RESIDUAL)
    ranked = every(bare)
    assert len(bare.forms) != len(RESIDUAL.forms)
    moved = carried_over(ranked, RESIDUAL, PLACEMENT)
    assert moved is not None and moved.forms == RESIDUAL.forms
    assert (moved.implementation, moved.settings) in {
        (c.implementation, c.settings) for c in ranked
    }
    assert moved in every(RESIDUAL)


def test_what_the_task_cannot_take_is_passed_over() -> None:
    strange = Candidate(implementation="another", settings=(), forms=bare_task(FUSED).forms)
    twisted = structs.replace(EVERY[0], settings=(("lanes", 7),))
    assert carried_over([strange, twisted, EVERY[3]], FUSED, PLACEMENT) == EVERY[3]
    assert carried_over([strange, twisted], FUSED, PLACEMENT) is None
    assert carried_over([], FUSED, PLACEMENT) is None


def test_the_best_that_fits_is_taken() -> None:
    for first, second in permutations((EVERY[1], EVERY[-1])):
        assert carried_over([first, second], FUSED, PLACEMENT) == first


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(EVERY) - 1), min_size=2, max_size=6))
def test_packed_weights_follow_from_workload_and_candidate_alone(order: list[int]) -> None:
    """The seed's case 2: whatever was packed before, a candidate's layout of the weights is its
    own, and holds every weight once."""
    weights = np.arange(32 * 32 * 9, dtype=np.float32).reshape(32, 32, 3, 3)
    bias = np.zeros((32, 1, 1), np.float32)
    constants = {1: weights, 2: bias}
    packed = {}
    for index in (*order, *reversed(order)):
        candidate = EVERY[index]
        spec = implementation(candidate.implementation)
        shapes = spec.packed_shapes(FUSED.workload, candidate)
        made = spec.pack(FUSED.workload, candidate, constants)
        for position, shape in shapes.items():
            assert made[position].shape == shape
        known = packed.setdefault(index, made[1])
        np.testing.assert_array_equal(made[1], known)
        if candidate.implementation == DIRECT:
            np.testing.assert_array_equal(np.sort(made[1], axis=None), weights.ravel())
    np.testing.assert_array_equal(constants[1], np.arange(weights.size).reshape(weights.shape))


def test_settings_decide_the_layout_of_the_weights() -> None:
    shapes = {
        (c.implementation, implementation(c.implementation).packed_shapes(FUSED.workload, c)[1])
        for c in EVERY
        if c.implementation in (DIRECT, WINOGRAD)
    }
    assert len(shapes) > 2


@pytest.mark.parametrize("kernel", [1, 3])
def test_the_int8_case_is_bound_by_other_things_at_each_level(kernel: int) -> None:
    """Alone it writes four bytes per result, fused one."""
    bare, fused = int8_case(kernel)
    assert bare.result.dtype == "int32" and fused.result.dtype == "int8"
    assert bare.result.shape == fused.result.shape
    assert bare.result.bytes == 4 * fused.result.bytes
    found = bare_anchor(fused, int8_forms(fused, PLACEMENT.target))
    assert found is not None and found[0] == bare
    made = [one for one in int8_tasks(PLACEMENT).values() if one.workload == fused]
    assert len(made) == 1 and bare_task(made[0]).workload.key == bare.key
    best = every(bare_task(made[0]))[0]
    moved = carried_over([best], made[0], PLACEMENT)
    assert moved is not None and moved.forms == made[0].forms

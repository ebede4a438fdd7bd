"""The spec of row kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.kernels.streaming_cases import ADD, MEAN, SOFTMAX, task
from tilewright.core.forms import PLAIN, blocked
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.rows import ROWS as SPEC
from tilewright.kernels.rows import Frame
from tilewright.testing.implementations import made_up_placement


def test_applies_to_reductions_of_types_that_accumulate_in_themselves() -> None:
    assert SPEC.applies(
        MEAN, made_up_placement().target, made_up_placement().resources
    ) and SPEC.applies(SOFTMAX, made_up_placement().target, made_up_placement().resources)
    assert not SPEC.applies(ADD, made_up_placement().target, made_up_placement().resources)
    assert not SPEC.applies(
        task([(3, 4)], "reduce_sum", "int8", axes=(0,), keepdims=False),
        made_up_placement().target,
        made_up_placement().resources,
    )
    assert not SPEC.applies(
        task([(3, 4)], "reduce_sum", axes=(), keepdims=False),
        made_up_placement().target,
        made_up_placement().resources,
    )


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.integers(1, 4),
    st.sets(st.integers(0, 3)),
)
def test_frame_covers_every_element_once(shape: list[int], block: int, reduced: set[int]) -> None:
    shape[1] *= block
    axes = Frame(tuple(shape), blocked(block), frozenset(reduced & set(range(len(shape)))))
    assert sorted((*axes.kept, *axes.gone)) == list(range(len(axes.axes)))
    total = np.prod(axes.extents(axes.kept), dtype=int) * np.prod(
        axes.extents(axes.gone), dtype=int
    )
    assert total == np.prod(shape)


def test_innermost_axis_decides_what_the_lanes_are() -> None:
    assert Frame((1, 64, 7, 7), PLAIN, frozenset({2, 3})).across
    assert not Frame((1, 64, 7, 7), blocked(16), frozenset({2, 3})).across
    assert Frame((1, 64, 7, 7), blocked(16), frozenset({1})).across
    assert not Frame((1, 64, 7, 1), PLAIN, frozenset({3})).across


@pytest.mark.parametrize("workload", [MEAN, SOFTMAX])
def test_facts_are_vectorised_and_prefer_several_streams(workload) -> None:
    forms = (PLAIN, PLAIN)
    (knob,) = SPEC.knobs(workload, made_up_placement().target, made_up_placement().resources, forms)
    settings = [{"streams": value} for value in knob.values]
    facts = facts_of(
        SPEC, workload, made_up_placement().target, made_up_placement().resources, forms, settings
    )
    assert all(column.shape == (len(settings),) for column in facts.values())
    assert (facts["estimate_s"] > 0).all() and np.isfinite(facts["estimate_s"]).all()
    assert facts["estimate_s"].argmin() > 0


def test_more_threads_are_not_slower() -> None:
    forms, settings = (PLAIN, PLAIN), [{"streams": 2}]
    one = facts_of(
        SPEC,
        SOFTMAX,
        made_up_placement(threads=1).target,
        made_up_placement(threads=1).resources,
        forms,
        settings,
    )["estimate_s"]
    four = facts_of(
        SPEC,
        SOFTMAX,
        made_up_placement(threads=4).target,
        made_up_placement(threads=4).resources,
        forms,
        settings,
    )["estimate_s"]
    assert four < one

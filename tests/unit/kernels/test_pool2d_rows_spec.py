"""The spec of pooling kernels."""

from __future__ import annotations

import pytest

from helpers.kernels.spec_checks import blocks_of
from helpers.kernels.streaming_cases import ADD, POOL, WINDOW, task
from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.rows import POOLING as SPEC
from tilewright.testing.implementations import made_up_placement


def test_applies_to_pooling_only_in_types_it_can_accumulate() -> None:
    assert SPEC.applies(POOL, made_up_placement().target, made_up_placement().resources)
    assert not SPEC.applies(ADD, made_up_placement().target, made_up_placement().resources)
    assert SPEC.applies(
        task([(1, 8, 9, 9)], "max_pool2d", "int8", **WINDOW),
        made_up_placement().target,
        made_up_placement().resources,
    )
    mean = task([(1, 8, 9, 9)], "avg_pool2d", "int8", count_include_pad=True, **WINDOW)
    assert not SPEC.applies(mean, made_up_placement().target, made_up_placement().resources)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_blocks_divide_the_channels_and_follow_the_vector_width(vector_bytes: int) -> None:
    here = made_up_placement(vector_bytes=vector_bytes)
    blocks = blocks_of(SPEC, POOL, here)
    assert blocks[0] == vector_bytes // 4 and blocks[-1] == 0
    assert all(block == 0 or 64 % block == 0 for block in blocks)


@pytest.mark.parametrize("form", [PLAIN, blocked(16)])
def test_facts_are_positive_for_every_setting(form: Form) -> None:
    forms = (form, form)
    (knob,) = SPEC.knobs(POOL, made_up_placement().target, made_up_placement().resources, forms)
    settings = [{"tile_width": value} for value in knob.values]
    facts = facts_of(
        SPEC, POOL, made_up_placement().target, made_up_placement().resources, forms, settings
    )
    assert all(column.shape == (len(settings),) for column in facts.values())
    assert (facts["estimate_s"] > 0).all()
    if form == blocked(16):
        assert all(28 % value == 0 for value in knob.values)


def test_bound_allows_for_the_window_but_stays_small() -> None:
    assert 0 < SPEC.error_bound(POOL) <= 1e-4

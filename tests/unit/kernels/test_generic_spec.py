"""The spec of the fallback."""

from __future__ import annotations

import pytest
from streaming_cases import ADD, CONCAT, MEAN, OPAQUE, POOL, SOFTMAX, task

from tilewright.kernels import injective, pool2d_rows, rows
from tilewright.kernels.generic import SPEC
from tilewright.testing.implementations import made_up_device


def test_applies_to_everything_but_opaque_operators() -> None:
    assert SPEC.anchors == {"*"}
    assert all(SPEC.applies(w, made_up_device()) for w in (ADD, CONCAT, MEAN, POOL, SOFTMAX))
    assert SPEC.applies(task([(2, 3), (3, 4)], "dense", "int64"), made_up_device())
    assert not SPEC.applies(OPAQUE, made_up_device())


@pytest.mark.parametrize(
    ("spec", "workload", "settings"),
    [
        (rows.SPEC, MEAN, {"streams": 1}),
        (rows.SPEC, SOFTMAX, {"streams": 1}),
        (pool2d_rows.SPEC, POOL, {"tile_width": 1}),
        (injective.SPEC, ADD, {"vector": 16}),
        (injective.SPEC, CONCAT, {"vector": 16}),
    ],
)
def test_ranks_behind_every_specialised_implementation(spec, workload, settings) -> None:
    layouts = ("plain",) * (len(workload.arguments) + 1)
    special = spec.facts(workload, made_up_device(), layouts, [settings])["estimate_s"][0]
    assert SPEC.facts(workload, made_up_device(), layouts, [{}])["estimate_s"][0] > special


def test_bound_follows_the_type() -> None:
    half = task([(8, 64), (64, 8)], "dense", "float16")
    double = task([(8, 64), (64, 8)], "dense", "float64")
    assert SPEC.error_bound(double) < 1e-12 < 4e-4 < SPEC.error_bound(half) < 1e-2

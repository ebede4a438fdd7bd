"""The spec of the fallback."""

from __future__ import annotations

import pytest
from streaming_cases import ADD, CONCAT, MEAN, OPAQUE, POOL, SOFTMAX, device, task

from tilewright.kernels import injective, pool2d_rows, rows
from tilewright.kernels.generic import SPEC


def test_applies_to_everything_but_opaque_operators() -> None:
    assert SPEC.anchors == {"*"}
    assert all(SPEC.applies(w, device()) for w in (ADD, CONCAT, MEAN, POOL, SOFTMAX))
    assert SPEC.applies(task([(2, 3), (3, 4)], "dense", "int64"), device())
    assert not SPEC.applies(OPAQUE, device())


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
    special = spec.facts(workload, device(), layouts, [settings])["estimate_s"][0]
    assert SPEC.facts(workload, device(), layouts, [{}])["estimate_s"][0] > special


def test_bound_follows_the_type() -> None:
    half = task([(8, 64), (64, 8)], "dense", "float16")
    double = task([(8, 64), (64, 8)], "dense", "float64")
    assert SPEC.error_bound(double) < 1e-12 < 1e-3 < SPEC.error_bound(half)

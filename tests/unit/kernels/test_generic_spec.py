"""The spec of the fallback."""

from __future__ import annotations

import pytest

from helpers.kernels.streaming_cases import ADD, CONCAT, MEAN, OPAQUE, POOL, SOFTMAX, task
from tilewright.core.forms import PLAIN
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels import generic, rows
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.generic import GENERIC as SPEC
from tilewright.testing.implementations import made_up_placement


def test_applies_to_everything_but_opaque_operators() -> None:
    assert SPEC.anchors == {"*"}
    assert all(
        SPEC.applies(w, made_up_placement().target, made_up_placement().resources)
        for w in (ADD, CONCAT, MEAN, POOL, SOFTMAX)
    )
    assert SPEC.applies(
        task([(2, 3), (3, 4)], "dense", "int64"),
        made_up_placement().target,
        made_up_placement().resources,
    )
    assert not SPEC.applies(OPAQUE, made_up_placement().target, made_up_placement().resources)


@pytest.mark.parametrize(
    ("spec", "workload", "settings"),
    [
        (rows.ROWS, MEAN, {"streams": 1}),
        (rows.ROWS, SOFTMAX, {"streams": 1}),
        (rows.POOLING, POOL, {"tile_width": 1}),
        (generic.INJECTIVE, ADD, {"vector": 16}),
        (generic.INJECTIVE, CONCAT, {"vector": 16}),
    ],
)
def test_ranks_behind_every_specialised_implementation(spec, workload, settings) -> None:
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    special = facts_of(
        spec, workload, made_up_placement().target, made_up_placement().resources, forms, [settings]
    )["estimate_s"][0]
    assert (
        facts_of(
            SPEC, workload, made_up_placement().target, made_up_placement().resources, forms, [{}]
        )["estimate_s"][0]
        > special
    )


def test_bound_follows_the_type() -> None:
    """One rounding of the kernel's, one of the reference's; sums are kept in single precision."""

    def bound(dtype: str) -> float:
        return SPEC.error_bound(task([(8, 4096), (4096, 8)], "dense", dtype))

    assert bound("float64") < 1e-12
    assert 2**-10 < bound("float16") < 1.1 * 2**-10
    assert 2**-7 < bound("bfloat16") < 1.1 * 2**-7
    assert bound("float32") < 5e-5


def test_what_rounds_nothing_has_no_more_of_a_bound_in_halves() -> None:
    assert SPEC.error_bound(task([(1, 8, 4, 4)], "relu", "bfloat16")) < 1e-5


def test_halves_on_the_way_count_though_the_result_is_none() -> None:
    def steps(dtype: str) -> Workload:
        kinds = (TensorType((4, 8), dtype), TensorType((8,), dtype))
        return Workload(
            arguments=tuple(Argument(type=kind) for kind in kinds),
            steps=(
                Step(operator="multiply", inputs=(0, 1)),
                Step(operator="cast", inputs=(2,), attributes=attributes(dtype="float32")),
            ),
        )

    assert SPEC.error_bound(steps("bfloat16")) > 2**-7
    assert SPEC.error_bound(steps("float32")) < 1e-5

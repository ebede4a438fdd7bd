"""The spec of kernels without an anchor."""

from __future__ import annotations

from helpers.kernels.streaming_cases import ADD, CONCAT, MEAN, OPAQUE, task
from tilewright.core.forms import PLAIN, blocked
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.generic import INJECTIVE as SPEC
from tilewright.kernels.generic import copied_parts
from tilewright.testing.implementations import made_up_placement


def test_applies_without_an_anchor_only() -> None:
    assert SPEC.applies(
        ADD, made_up_placement().target, made_up_placement().resources
    ) and SPEC.applies(CONCAT, made_up_placement().target, made_up_placement().resources)
    assert not SPEC.applies(
        MEAN, made_up_placement().target, made_up_placement().resources
    ) and not SPEC.applies(OPAQUE, made_up_placement().target, made_up_placement().resources)
    for workload in (ADD, CONCAT):
        assert workload.anchor_name in SPEC.anchors


def test_parts_of_a_concatenation_are_copied_where_chunks_stay_whole() -> None:
    assert copied_parts(CONCAT, (blocked(8), blocked(8), blocked(8)))
    assert copied_parts(CONCAT, (blocked(8), blocked(8), PLAIN))
    assert not copied_parts(CONCAT, (PLAIN, PLAIN, blocked(20)))
    assert not copied_parts(ADD, (PLAIN,) * 3)


def test_estimate_grows_with_bytes_and_with_a_layout_change() -> None:
    settings = [{"vector": 16}]

    def seconds(workload, forms) -> float:
        return float(
            facts_of(
                SPEC,
                workload,
                made_up_placement().target,
                made_up_placement().resources,
                forms,
                settings,
            )["estimate_s"][0]
        )

    small = task([(1, 64, 14, 14)], "identity")
    large = task([(1, 64, 56, 56)], "identity")
    assert seconds(small, (PLAIN,) * 2) < seconds(large, (PLAIN,) * 2)
    assert seconds(large, (PLAIN,) * 2) < seconds(large, (PLAIN, blocked(16)))


def test_nothing_is_repacked() -> None:
    assert SPEC.pack(ADD, None, {}) == {} and SPEC.packed_shapes(ADD, None) == {}

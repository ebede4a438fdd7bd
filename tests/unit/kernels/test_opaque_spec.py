"""The spec of imported operators."""

from __future__ import annotations

from helpers.kernels.streaming_cases import ADD, OPAQUE
from tilewright.core.forms import PLAIN, blocked
from tilewright.kernels.estimates import facts as facts_of
from tilewright.kernels.generic import OPAQUE as SPEC
from tilewright.testing.implementations import made_up_placement


def test_applies_to_a_single_opaque_step_in_plain_layout() -> None:
    assert SPEC.applies(
        OPAQUE, made_up_placement().target, made_up_placement().resources
    ) and not SPEC.applies(ADD, made_up_placement().target, made_up_placement().resources)
    assert OPAQUE.anchor_name in SPEC.anchors
    assert SPEC.port_forms(OPAQUE, made_up_placement().target, made_up_placement().resources) == (
        (PLAIN, PLAIN),
    )
    assert SPEC.valid(
        OPAQUE, made_up_placement().target, made_up_placement().resources, (PLAIN, PLAIN), {}
    )
    assert not SPEC.valid(
        OPAQUE, made_up_placement().target, made_up_placement().resources, (PLAIN, blocked(4)), {}
    )


def test_facts_hold_what_every_spec_must_tell() -> None:
    facts = facts_of(
        SPEC,
        OPAQUE,
        made_up_placement().target,
        made_up_placement().resources,
        (PLAIN, PLAIN),
        [{}],
    )
    assert facts["estimate_s"].shape == facts["parallel_extent"].shape == (1,)

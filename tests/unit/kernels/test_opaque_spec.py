"""The spec of imported operators."""

from __future__ import annotations

from streaming_cases import ADD, OPAQUE, device

from tilewright.kernels.opaque import SPEC


def test_applies_to_a_single_opaque_step_in_plain_layout() -> None:
    assert SPEC.applies(OPAQUE, device()) and not SPEC.applies(ADD, device())
    assert OPAQUE.anchor_name in SPEC.anchors
    assert SPEC.result_blocks(OPAQUE, device()) == (0,)
    assert SPEC.valid(OPAQUE, device(), ("plain", "plain"), {})
    assert not SPEC.valid(OPAQUE, device(), ("plain", "blocked4"), {})


def test_facts_hold_what_every_spec_must_tell() -> None:
    facts = SPEC.facts(OPAQUE, device(), ("plain", "plain"), [{}])
    assert facts["estimate_s"].shape == facts["parallel_extent"].shape == (1,)

"""A race on a device where the reference cannot be timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.records.report_results import OPTIMIZED
from tilewright.core.errors import TargetError
from tilewright.core.timings import Timing
from tilewright.deploy import optimizing
from tilewright.deploy.shipment import beside_reference
from tilewright.hardware.environment import environment_card, read_environment
from tilewright.report import views
from tilewright.report.html import render

BARE = replace(
    OPTIMIZED,
    reference_latency_s=None,
    speedup_vs_reference=None,
    speedup_vs_reference_low=None,
    speedup_vs_reference_high=None,
    reference_untimed="its server offers no peers",
    warnings=(),
)
OURS = Timing(rounds_s=((2e-3, 2e-3),) * 5)


def test_a_time_that_is_absent_is_told_with_the_reason() -> None:
    told = beside_reference(BARE, OURS, None)
    assert told.reference_latency_s is None and told.speedup_vs_reference is None
    assert told.warnings == (
        "ONNX Runtime was not timed on the device: its server offers no peers.",
    )
    assert "not timed on the device" in str(views.optimize_summary(told))
    page = render(told)
    assert "not timed on the device" in page and "its server offers no peers" in page


def test_a_time_that_is_there_is_compared() -> None:
    told = beside_reference(
        replace(BARE, reference_untimed=""), OURS, Timing(rounds_s=((3e-3,) * 2,) * 5)
    )
    assert told.reference_latency_s == 3e-3 and told.speedup_vs_reference == pytest.approx(1.5)
    assert told.warnings == () and told.speedup_vs_reference_low == pytest.approx(1.5)


def test_surroundings_of_another_machine_are_not_ours() -> None:
    there = replace(PLACEMENT, device=replace(PLACEMENT.device, access="rpc"))
    card = environment_card(read_environment(), there)
    assert card["CPU"] == PLACEMENT.target.model and "tilewright" in card
    assert not {"memory", "governor", "kernel", "turbo"} & set(card)


def test_a_device_that_runs_no_networks_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernels:
        name, runs_networks = "kernels only", False

    monkeypatch.setattr(optimizing, "access_to", lambda _device: Kernels())
    never: Any = None
    request: Any = type("Request", (), {"budget": 1, "tuner": "default"})()
    monkeypatch.setattr(optimizing, "Budget", lambda _limit: None)
    with pytest.raises(TargetError, match="by 'kernels only'"):
        optimizing.optimize(request, PLACEMENT, never, lambda _event: None)

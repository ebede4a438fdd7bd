"""Hand-offs between lanes, measured in the pool's parallel loop; no time of them is judged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tilewright.compiler.handoffs import lane_handoffs
from tilewright.core.targets import threads_alone
from tilewright.hardware.device import local_placement


def test_stages_follow_each_other() -> None:
    placement = local_placement(None)
    with ThreadPoolExecutor(1) as own_pool:
        found = own_pool.submit(lane_handoffs, placement.target, threads_alone(2)).result()
    assert len(found) % 7 == 0 and len(found) > 100
    assert all(0.0 < seconds < 10.0 for seconds in found), "a stage began before the last one ended"


def test_without_a_clock_there_are_none() -> None:
    placement = local_placement(None)
    windows = replace(placement.target, tvm='{"kind": "llvm", "mtriple": "x86_64-windows"}')
    assert lane_handoffs(windows, threads_alone(2)) == []

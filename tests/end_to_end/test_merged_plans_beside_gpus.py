"""Plans that merge sibling calls over a CPU and a GPU, which is simulated: a merged call runs on
either, and its parts are read on the other one.

    stem  llvm    a.…  cuda, merged, read on both    b.…  llvm, merged, read on both    head  cuda
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.networks.modules import images, modules
from helpers.networks.onnx_models import reference
from helpers.networks.planned_networks import predict_equal_times, spread
from helpers.processes.simulated_card import simulated_card
from tilewright.core.schedules import PLAN_FILE
from tilewright.plan.scheduling.plan_file import Plan, read_plan, write_plan
from tilewright.session import Session
from tilewright.testing.cuda_execution import compiler

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
BOTH = ("llvm", "cuda")
A = ("a.reduce5", "a.reduce3", "a.one")
B = ("b.reduce5", "b.reduce3", "b.one")


@pytest.fixture(scope="module", autouse=True)
def card() -> Generator[None]:
    with simulated_card():
        yield


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Generator[Session]:
    """One in which calls are predicted to take as long as each other."""
    predict_equal_times(monkeypatch)
    with tilewright.open(db="memory:", threads=1) as opened:
        yield opened


def planned(session: Session, folder: Path) -> Plan:
    onnx.save(modules(), folder / "modules.onnx")
    told = session.plan(folder / "modules.onnx", BOTH, planner="heft", merge=True, out=folder)
    assert told.merging is not None and told.merging.gain > 1
    return read_plan(folder)


@pytest.mark.parametrize(
    "first",
    ["cuda", pytest.param("llvm", marks=pytest.mark.on_request)],
)
def test_merged_calls_on_either_device(session: Session, tmp_path: Path, first: str) -> None:
    plan = planned(session, tmp_path)
    assert {*plan.networks[0].merges} == {A, B}
    for group in (A, B):
        (call,) = (c for c in plan.problem.calls if c.name == " + ".join(group))
        assert {mode.device for mode in call.modes} == {*BOTH}
    second = next(device for device in BOTH if device != first)
    where = {c.name: BOTH[n % 2] for n, c in enumerate(plan.problem.calls)}
    where |= {" + ".join(A): first, " + ".join(B): second}
    where |= {"a.three": second, "a.five": first, "b.three": first, "b.five": second}
    placed = spread(plan, where)
    write_plan(placed, tmp_path / PLAN_FILE)
    for group, device in ((A, first), (B, second)):
        assert placed.schedule.mode_of(placed.problem, " + ".join(group)).device == device
    for mode in ("parallel", "sequential"):
        with session.open_plan(tmp_path, mode=mode) as network:
            for seed in range(2):
                wanted = reference(modules(), images(seed))["head"]
                found = network.run(images(seed))["head"]
                assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()

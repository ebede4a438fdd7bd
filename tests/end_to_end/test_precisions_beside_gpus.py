"""Plans in other precisions than float32 over a CPU and a GPU, which is simulated: the CPU computes
in them, the GPU in float32, and both what is on codes.

    stem  llvm    right  cuda    left  llvm    head  cuda, reads both
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from helpers.networks.branches import branches, image
from helpers.networks.onnx_models import reference
from helpers.networks.planned_networks import spread
from helpers.networks.quantized_encoder import quantized
from helpers.processes.simulated_card import simulated_card
from tilewright.core.errors import TargetError
from tilewright.core.records import Precision
from tilewright.core.schedules import PLAN_FILE, ScheduleResult
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.models import ModelOptions
from tilewright.plan.scheduling.plan_file import read_plan, write_plan
from tilewright.session import Session
from tilewright.testing.cuda_execution import compiler

pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler executes CUDA text here"),
    pytest.mark.skipif(
        not half_lanes(local_placement().target), reason="no products of bfloat16 here"
    ),
]
BOTH = ("llvm", "cuda")


@pytest.fixture(scope="module", autouse=True)
def card() -> Generator[None]:
    with simulated_card():
        yield


@pytest.fixture
def session() -> Generator[Session]:
    with tilewright.open(db="memory:", threads=1) as opened:
        yield opened


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(branches(), tmp_path / "branches.onnx")
    return tmp_path / "branches.onnx"


def in_turn(folder: Path) -> dict[str, str]:
    """Put the calls of a plan on both devices in turn, where both compute them; where each is."""
    plan = read_plan(folder)
    devices = {c.name: {m.device for m in c.modes if m.kernel} for c in plan.problem.calls}
    shared = [name for name, known in devices.items() if known == {*BOTH}]
    where = {name: BOTH[number % 2] for number, name in enumerate(shared)}
    write_plan(spread(plan, where), folder / PLAN_FILE)
    return where


def run(session: Session, folder: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The outputs of a plan in parts, each way, which are within the allowed error."""
    found = {}
    for mode in ("parallel", "sequential"):
        with session.open_plan(folder, mode=mode) as network:
            found[mode] = network.run(inputs)
            (check,) = network.checked(inputs, found[mode])
        assert check.right, check
    return found


def check_told(told: ScheduleResult, folder: Path, precision: str, gpu: Precision | None) -> None:
    """Answer, plan, page and trace say in what the GPU computes, where that is another precision
    than the network's."""
    (name,) = told.precisions
    own = {} if gpu is None else {name: {"cuda": gpu}}
    assert told.precisions == {name: precision} and told.device_precisions == own
    plan = json.loads((folder / PLAN_FILE).read_text())
    assert [each["device_precisions"] for each in plan["networks"]] == [own.get(name, {})]
    said = precision if gpu is None else f"{precision}, {gpu} on cuda"
    assert said in (folder / "plan.html").read_text()
    assert said in repr(told)
    trace = json.loads((folder / "trace.json").read_text())
    assert trace["otherData"]["device_precisions"] == own


@pytest.mark.parametrize(
    ("precision", "gpu", "cpu_kernel", "gpu_kernel"),
    [
        ("bfloat16", "float32", "conv2d_bfloat16", "cuda_product"),
        pytest.param(
            *("float16", "float32", "conv2d_", "cuda_product"), marks=pytest.mark.on_request
        ),
        pytest.param(
            *("int8", None, "conv2d_int8", "cuda_product_int8"), marks=pytest.mark.on_request
        ),
        pytest.param(
            *("int8-weights", "float32", "conv2d_", "cuda_product"), marks=pytest.mark.on_request
        ),
    ],
)
def test_each_device_in_what_it_computes(
    session: Session,
    model: Path,
    tmp_path: Path,
    precision: Precision,
    gpu: Precision | None,
    cpu_kernel: str,
    gpu_kernel: str,
) -> None:
    options = ModelOptions(precision=precision)
    told = session.plan(model, BOTH, options=options, planner="heft", out=tmp_path)
    check_told(told, tmp_path, precision, gpu)
    kernels = {
        device: {
            m.kernel
            for c in read_plan(tmp_path).problem.calls
            for m in c.modes
            if m.device == device
        }
        for device in BOTH
    }
    assert any(kernel.startswith(cpu_kernel) for kernel in kernels["llvm"])
    assert any(kernel.startswith(gpu_kernel) for kernel in kernels["cuda"])
    where = in_turn(tmp_path)
    assert {*where.values()} == {*BOTH}
    found = run(session, tmp_path, image())["parallel"]["head"]
    wanted = reference(branches(), image())["head"]
    off = np.abs(found - wanted).max() / np.abs(wanted).max()
    least = 1e-4 if precision in ("bfloat16", "int8") else 0.0
    assert least <= off < 5e-2, "the CPU's part is in the precision"


@pytest.mark.on_request
@pytest.mark.parametrize("precision", ["auto", "bfloat16", "float32"])
def test_an_artifact_of_the_cpu_beside_a_gpu(
    session: Session, model: Path, tmp_path: Path, precision: Precision
) -> None:
    """On the CPU it is as it was compiled; on the GPU kernels are chosen for it."""
    options = ModelOptions(precision=precision)
    session.optimize(model, budget=0, options=options, max_error=2e-2, out=tmp_path / "made")
    told = session.plan(tmp_path / "made", BOTH, planner="heft", out=tmp_path / "p")
    check_told(told, tmp_path / "p", precision, None if precision == "float32" else "float32")
    in_turn(tmp_path / "p")
    with session.open_plan(tmp_path / "p", mode="parallel") as network:
        found = network.run(image())["head"]
    wanted = reference(branches(), image())["head"]
    assert np.abs(found - wanted).max() < 2e-2 * np.abs(wanted).max()
    with pytest.raises(TargetError, match="was compiled "):
        session.plan(tmp_path / "made", ["cuda"])


@pytest.mark.on_request
@pytest.mark.parametrize("devices", [BOTH, BOTH[::-1]])
def test_what_is_one_call_on_the_cpu_alone(
    session: Session, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    """Attention on codes is one call on CPUs and several on GPUs: it runs on the CPU."""
    file = quantized(tmp_path)
    session.plan(file, devices, planner="heft", out=tmp_path)
    calls = read_plan(tmp_path).problem.calls
    (attention,) = (c for c in calls if any("attention_int8" in m.kernel for m in c.modes))
    assert {mode.device for mode in attention.modes} == {"llvm"}
    where = in_turn(tmp_path)
    assert {*where.values()} == {*BOTH}
    x = np.random.default_rng(9).standard_normal((1, 17, 32)).astype(np.float32)
    wanted = reference(onnx.load(file), {"x": x})["y"]
    code = np.diff(np.unique(wanted)).min()
    with session.open_plan(tmp_path, mode="parallel") as network:
        assert np.abs(network.run({"x": x})["y"] - wanted).max() < 1.5 * code


def test_what_is_refused(session: Session, model: Path) -> None:
    halves = ModelOptions(precision="bfloat16")
    with pytest.raises(TargetError, match="in bfloat16 on CPUs, not on") as told:
        session.plan(model, ["cuda"], options=halves)
    assert told.value.hint is not None and "beside a CPU" in told.value.hint
    with pytest.raises(TargetError, match="has no products of bfloat16"):
        session.plan(model, ["cuda", "llvm -mcpu=haswell"], options=halves)
    told_of = session.plan(model, ["cuda"], options=ModelOptions(precision="int8"))
    assert told_of.precisions == {"branches": "int8"} and not told_of.device_precisions

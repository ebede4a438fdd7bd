"""`optimize` for a GPU, simulated: from a model to an artifact that runs as a CUDA graph."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from helpers.commands.command_line import answer, call, run
from helpers.networks.onnx_models import model_of, normal, reference
from helpers.plugins.offer import offering
from helpers.processes import numpy_engine
from helpers.processes.simulated_card import simulated_card
from tilewright.compiler.cuda import nvidia
from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.results import OptimizeResult
from tilewright.graph.network import Array
from tilewright.measure.peers import base
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import H100, SimulatedDriver

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
MODEL = model_of(
    [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Gemm", ["t", "w", "b"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=1),
    ],
    {"x": (1, 24)},
    constants={"w": normal(24, 6, seed=1), "b": normal(6, seed=2)},
)


@dataclass(frozen=True, slots=True)
class Optimized:
    folder: Path
    result: OptimizeResult


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Generator[None]:
    with simulated_card():
        yield


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Optimized:
    place = tmp_path_factory.mktemp("optimized")
    onnx.save(MODEL, place / "small.onnx")
    folder = place / "out"
    with tilewright.Session(target="cuda", db="memory:") as session:
        made = session.optimize(place / "small.onnx", budget=8, out=folder)
    return Optimized(folder, made.result)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "open_driver", lambda _target: SimulatedDriver())


def given(seed: int = 7) -> Array:
    return normal(1, 24, seed=seed)


def expected(x: Array) -> Array:
    return reference(MODEL, {"x": x})["y"]


def test_an_artifact_for_a_gpu_appears(optimized: Optimized) -> None:
    names = {path.name for path in optimized.folder.iterdir()}
    assert {"model.cuda", "weights.params", "manifest.json", "report.html"} <= names
    assert "model.so" not in names
    manifest = json.loads((optimized.folder / "manifest.json").read_text())
    assert set(manifest["sizes_bytes"]) == {"model.cuda", "weights.params"}
    assert manifest["machine"]["architecture"] == "sm_90"
    result = optimized.result
    assert result.max_rel_error < 1e-5
    assert result.latency_s == pytest.approx(3e-5), "three launches of the simulated clock"
    assert result.reference_latency_s is None and result.reference_untimed


@pytest.mark.usefixtures("on_a_gpu")
def test_it_is_loaded_and_called_in_this_process(optimized: Optimized) -> None:
    network = tilewright.load(optimized.folder)
    for seed in range(2):
        np.testing.assert_allclose(network(given(seed)), expected(given(seed)), rtol=1e-4)
    with pytest.raises(UsageError, match=r"is float32\[1, 5\]"):
        network(np.zeros((1, 5), np.float32))


WITHOUT_TVM = """
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None
import numpy as np
import tilewright
from tilewright.compiler.cuda import nvidia
from tilewright.testing.simulated_driver import SimulatedDriver
nvidia.open_driver = lambda target: SimulatedDriver()
np.save(sys.argv[3], tilewright.load(sys.argv[1])(np.load(sys.argv[2])))
"""


def test_tvm_is_not_needed_to_run_it(optimized: Optimized, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", given())
    files = [optimized.folder, tmp_path / "x.npy", tmp_path / "y.npy"]
    subprocess.run([sys.executable, "-c", WITHOUT_TVM, *map(str, files)], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(given()), rtol=1e-4)


def test_it_runs_on_its_target_and_on_no_other(optimized: Optimized) -> None:
    with tilewright.Session(target="cuda", db="memory:") as there:
        found = there.run(optimized.folder, {"x": given()})
    np.testing.assert_allclose(found["y"], expected(given()), rtol=1e-4)
    with (
        tilewright.Session(target="simulated", db="memory:") as elsewhere,
        pytest.raises(TargetError, match="compiled for sm_90, the device simulated is x86_64"),
    ):
        elsewhere.run(optimized.folder, {"x": given()})


def test_without_a_card_it_does_not_run(optimized: Optimized, tmp_path: Path) -> None:
    """In a process that has no simulated card."""
    np.save(tmp_path / "x.npy", given())
    done = run(tmp_path, "run", optimized.folder, "--input", "x.npy")
    assert done.code == 3, done.err
    assert "driver" in done.err and "Traceback" not in done.err


def test_it_is_compared_with_a_peer_on_the_same_gpu(optimized: Optimized, tmp_path: Path) -> None:
    with offering(tmp_path / "offered", numpy_engine.POINTS):
        asked = ("--target", "cuda", "--peers", "numpy")
        (row,) = answer(tmp_path, "compare", optimized.folder, *asked)["rows"]
    assert row["latency_s"] == pytest.approx(3e-5), "three launches of the simulated clock"
    assert row["speedup"] == pytest.approx(row["peer_latency_s"] / row["latency_s"], rel=0.05)
    assert max(row["max_rel_error"], row["peer_rel_error"]) < 1e-5


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--target", "cuda", "--peers", "torch"), "package torch is not installed"),
        (("--target", "cuda", "--peers", "openvino,torch"), "of the kind cpu, not cuda; torch: "),
        (("--target", "cuda", "--peers", "onnxruntime"), "built without CUDA"),
        ((), "compiled for cuda (H100), not for"),
    ],
    ids=["not installed", "not for GPUs", "built for CPUs", "on this CPU"],
)
def test_where_nothing_can_be_compared_what_is_missing_is_said(
    optimized: Optimized,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None if name == "torch" else name)
    done = call(tmp_path, "compare", optimized.folder, *flags)
    assert done.code == 3, done.err
    assert said in done.err and "Traceback" not in done.err
    assert not flags or ("onnxruntime-gpu" in done.err and "openvino]" not in done.err)


def test_its_kernels_are_shown_on_its_target(optimized: Optimized) -> None:
    with tilewright.Session(target="cuda", db="memory:") as there:
        assert there.show(str(optimized.folder), "cuda").count("__global__") >= 3
    with (
        tilewright.Session(db="memory:") as elsewhere,
        pytest.raises(TargetError, match=r"compiled for cuda \(H100\), not for"),
    ):
        elsewhere.show(str(optimized.folder), "tir")


def test_another_gpu_refuses_it(optimized: Optimized, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimulatedDriver(replace(H100, capability=(8, 6)))
    monkeypatch.setattr(nvidia, "open_driver", lambda _target: old)
    with pytest.raises(TargetError, match="compiled for sm_90, the GPU here is sm_86"):
        tilewright.load(optimized.folder)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("name", ["model.cuda", "weights.params"])
def test_truncated_files_are_told(optimized: Optimized, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(optimized.folder, copy)
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[:-30])
    with pytest.raises(ModelError, match=f"cut short in {name}"):
        tilewright.load(copy)


def test_what_has_no_cuda_kernel_is_refused_before_any_work(
    optimized: Optimized, tmp_path: Path
) -> None:
    model = model_of(
        [
            helper.make_node("Relu", ["x"], ["r"], name="first"),
            helper.make_node("TopK", ["r", "k"], ["y", "i"], name="largest"),
        ],
        {"x": (3, 10)},
        constants={"k": np.array([2])},
        outputs=("y", "i"),
    )
    onnx.save(model, tmp_path / "topk.onnx")
    with (
        tilewright.Session(target="cuda", db="memory:") as session,
        pytest.raises(ModelError, match="nothing computes 'largest' .* on a H100"),
    ):
        session.optimize(tmp_path / "topk.onnx", budget=6, out=tmp_path / "out")

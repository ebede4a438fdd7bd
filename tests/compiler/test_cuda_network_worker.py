"""Networks on a simulated GPU in a process of their own: what it is given, what it refuses."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import model_of, normal, reference
from helpers.plugins.offer import offering
from helpers.plugins.simulated_gpu import ACCESS, POINTS, h100
from helpers.processes import simulated_gpu_networks
from tilewright.compiler.cuda.execute import LoadedCudaNetwork, WeightsOnGpu
from tilewright.compiler.cuda.network import LIBRARY
from tilewright.core.errors import InputError, ModelError, NegativeVerdict
from tilewright.core.weights import WEIGHTS, share, write_reference
from tilewright.graph.network import Array
from tilewright.measure import networks as measured_networks
from tilewright.measure.cuda_networks import CudaNetworks
from tilewright.measure.networks import RUN_TIMEOUT_S
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.testing.cuda_execution import compiler
from tilewright.testing.simulated_driver import SimulatedDriver

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


@pytest.fixture(scope="module", autouse=True)
def offered(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    with offering(tmp_path_factory.mktemp("offered"), POINTS):
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(MODEL, path)
    return path


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A compiled network, and the names of its constants."""
    network = prepare(str(model), ModelOptions(), h100())
    folder = tmp_path_factory.mktemp("made")
    with ACCESS.networks(h100()) as networks:
        networks.compile(network.plan, network.graph.constants, folder)
    return folder, network.plan.constant_names


def test_another_process_computes_what_onnx_runtime_does(made: tuple[Path, list[str]]) -> None:
    """The file and the weights are all that it is given."""
    x = normal(1, 24, seed=5)
    with ACCESS.networks(h100()) as networks:
        networks.load("it", *made)
        (found,) = networks.run("it", [x])
        with pytest.raises(InputError, match="compiled for float32"):
            networks.run("it", [x[:, :3]])
        peak = networks.memory_peak(*made, [x])
    np.testing.assert_allclose(found, reference(MODEL, {"x": x})["y"], rtol=1e-4)
    assert peak.bytes is not None and peak.bytes >= 24 * 6 * 4


def test_damaged_files_are_models_that_cannot_be_read(
    made: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, order = made
    with ACCESS.networks(h100()) as networks:
        for name in (LIBRARY, WEIGHTS):
            copy = tmp_path / name.replace(".", "-")
            shutil.copytree(folder, copy)
            (copy / name).write_bytes((folder / name).read_bytes()[:-40])
            with pytest.raises(ModelError, match="damaged"):
                networks.load("it", copy, order)
        with pytest.raises(ModelError, match="does not take the constants"):
            networks.load("it", folder, order[::-1])


def test_without_a_driver_it_is_said_what_is_missing(made: tuple[Path, list[str]]) -> None:
    """The usual worker asks for NVIDIA's driver, or says why there is none."""
    from tilewright.compiler.cuda import nvidia
    from tilewright.core.errors import TargetError

    try:
        nvidia.find_cards()
    except TargetError as missing:
        with (
            CudaNetworks(h100()) as networks,
            pytest.raises(TargetError, match=missing.message[:30]),
        ):
            networks.load("it", *made)


@pytest.mark.parametrize(
    ("given", "said", "within_s"),
    [
        (simulated_gpu_networks.SPOILS, "failed at run: .*ILLEGAL_ADDRESS", RUN_TIMEOUT_S),
        (simulated_gpu_networks.HANGS, "failed at run: no answer within 1 s", 1.0),
    ],
    ids=["sticky", "hang"],
)
def test_what_spoils_the_process_of_a_gpu_ends_it(
    made: tuple[Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    given: float,
    said: str,
    within_s: float,
) -> None:
    """The next request starts another process, which holds nothing yet."""
    x = normal(1, 24, seed=5)
    with CudaNetworks(h100(), simulated_gpu_networks.__name__) as networks:
        networks.load("it", *made)
        networks.run("it", [x])
        first = networks.pid
        with (
            monkeypatch.context() as patch,
            pytest.raises(NegativeVerdict, match=f"(?s){said}"),
        ):
            patch.setattr(measured_networks, "RUN_TIMEOUT_S", within_s)
            networks.run("it", [np.full_like(x, given)])
        networks.load("it", *made)
        assert networks.pid != first
        assert np.isfinite(networks.run("it", [x])[0]).all()


def test_shapes_hold_weights_that_they_share_once(
    made: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, order = made
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        shutil.copytree(folder, place)
    _, references = share([place / WEIGHTS for place in places], tmp_path)
    for place, where in zip(places, references, strict=True):
        write_reference(place / WEIGHTS, where)
    driver, x = SimulatedDriver(), normal(1, 24, seed=5)
    pool, free = WeightsOnGpu(driver), [driver.free_bytes()]
    networks = [LoadedCudaNetwork.open(places[0], order, driver, pool)]
    free.append(driver.free_bytes())
    networks.append(LoadedCudaNetwork.open(places[1], order, driver, pool))
    free.append(driver.free_bytes())
    weights = 4 * (24 * 6 + 6)
    assert (free[0] - free[1]) - (free[1] - free[2]) == weights
    for network in networks:
        np.testing.assert_allclose(network([x])[0], reference_of(x), rtol=1e-4)
    networks[0].close()
    np.testing.assert_allclose(networks[1]([x])[0], reference_of(x), rtol=1e-4)


def reference_of(x: Array) -> Array:
    return reference(MODEL, {"x": x})["y"]

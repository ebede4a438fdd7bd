"""A type for each tensor, within an error that people set, through the command line."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import call, reference, succeed
from mixed_noise import with_fast_halves
from tilewright.core.budget import parse_budget
from tilewright.core.errors import NegativeVerdict, UsageError
from tilewright.deploy.mixing import measured_mixing
from tilewright.deploy.opening import open_artifact
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes, has_half_arithmetic
from tilewright.measure.checking import compare_runs
from tilewright.measure.networks import NetworkWorker
from tilewright.measure.noise import measured_noise
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions
from tilewright.plan.mixture import Mixture
from tilewright.plan.network_problem import NetworkProblem
from tilewright.plan.planners import mixed_plan
from tilewright.plan.preparation import prepare
from tilewright.search.layout_costs import LayoutCosts
from tilewright.search.levels import OptimizeRequest

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 24, 24] x) => (float[1, 10] y)
<float[64, 16, 3, 3] a, float[64, 64, 1, 1] b, float[64, 10] c> {
  h = Conv <pads = [1, 1, 1, 1]> (x, a)
  g = Relu(h)
  k = Conv (g, b)
  s = Add(k, g)
  m = ReduceMean <axes = [2, 3], keepdims = 0> (s)
  y = MatMul(m, c)
}"""
RNG = np.random.default_rng(2)
X = RNG.standard_normal((6, 16, 24, 24)).astype(np.float32) + 0.2
MIXED = ModelOptions(precision="auto")
pytestmark = pytest.mark.skipif(
    not half_lanes(local_placement().target), reason="no products of bfloat16 here"
)


def write_model(path: Path, text: str, **weights: tuple[int, ...]) -> None:
    """A model with random weights of these shapes."""
    model = onnx.parser.parse_model(text)
    for name, shape in weights.items():
        values = RNG.standard_normal(shape).astype(np.float32) / 8
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, inputs for it, and what one command made of both."""
    folder = tmp_path_factory.mktemp("mixed")
    write_model(folder / "images.onnx", TEXT, a=(64, 16, 3, 3), b=(64, 64, 1, 1), c=(64, 10))
    np.savez(folder / "inputs.npz", x=X)
    answer = succeed(folder, "optimize", folder / "images.onnx", *asked(folder, "60dB"))
    (folder / "answer.json").write_text(json.dumps(answer))
    return folder


def asked(folder: Path, error: str) -> tuple[object, ...]:
    calibration = ("--calibration", folder / "inputs.npz", "--out", folder / "out")
    return ("--precision", "auto", "--max-error", error, "--budget", "0", *calibration)


def test_it_keeps_the_ratio_and_tells_what_it_is_made_of(made: Path) -> None:
    data = json.loads((made / "answer.json").read_text())
    mixture = data["mixture"]
    assert data["sqnr_db"] >= 60.0 and mixture["measured_sqnr_db"] == data["sqnr_db"]
    assert mixture["calibrated"] and mixture["gap"] == pytest.approx(0.0, abs=1e-6)
    network = tilewright.load(made / "out")
    expected = reference(made / "images.onnx", {"x": X[1:2]})["y"]
    ratio = np.sum(expected**2) / np.sum((np.asarray(network(X[1:2])) - expected) ** 2)
    assert 10 * np.log10(ratio) > 58.0
    if not data["shipped"].startswith("chosen"):
        pytest.skip("halves were not faster here")
    assert abs(mixture["predicted_sqnr_db"] - data["sqnr_db"]) < 3.0
    assert sum(layer["noise_share"] for layer in mixture["layers"]) == pytest.approx(1.0)
    types = {layer[kind] for layer in mixture["layers"] for kind in ("multiplied", "stored")}
    wanted = {"float16"} if has_half_arithmetic(local_placement().target) else {"bfloat16"}
    assert wanted <= types
    assert sum(point["chosen"] for point in mixture["front"]) == 1
    units = {layer["multiplied"]: layer["unit"] for layer in mixture["layers"]}
    assert set(units.values()) - {""} <= {unit.name for unit in local_placement().target.units}
    assert all(bool(multiplied) == bool(unit) for multiplied, unit in units.items())
    assert units.get("float32", "vector") == "vector" != units.get("bfloat16", "")


WINOGRADS = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 24, 24] x) => (float[1, 64] y)
<float[64, 16, 1, 1] a, float[64, 64, 3, 3] b, float[64, 64, 3, 3] c> {
  h = Conv (x, a)
  g = Relu(h)
  k = Conv <pads = [1, 1, 1, 1]> (g, b)
  r = Relu(k)
  s = Conv <pads = [1, 1, 1, 1]> (r, c)
  d = Add(s, h)
  y = ReduceMean <axes = [2, 3], keepdims = 0> (d)
}"""


@pytest.mark.on_request
def test_with_a_budget_of_time_it_is_tuned_within_the_error(made: Path, tmp_path: Path) -> None:
    """The noise of the same network and inputs is known from the run before."""
    with tilewright.open(db="memory:") as session:
        tuned = session.optimize(
            made / "images.onnx", budget="6s", out=tmp_path / "timed", max_error="45dB",
            options=ModelOptions(precision="auto", calibration=made / "inputs.npz"),
        )  # fmt: skip
    result = tuned.result
    assert result.sqnr_db is not None and result.sqnr_db >= 45.0
    assert result.mixture is not None and result.mixture.measured_sqnr_db == result.sqnr_db


def test_a_compiled_mixture_shows_the_noise_that_was_predicted(tmp_path: Path) -> None:
    """With estimates that prefer halves, also where this processor does not. Behind the mean over
    an image there is less of the noise of Winograd's data than of its weights."""
    path, planned = tmp_path / "images.onnx", with_fast_halves(allowing(local_placement(), MIXED))
    write_model(path, WINOGRADS, a=(64, 16, 1, 1), b=(64, 64, 3, 3), c=(64, 64, 3, 3))
    prepared = prepare(str(path), MIXED, planned)
    noise = measured_noise(prepared.fused, planned, [{"x": X[n : n + 1]} for n in (0, 2)])
    mixture = Mixture(noise=noise, allowed=noise.allowed(0.0, 38.0))
    problem = NetworkProblem(
        network=prepared.fused,
        usual=prepared.forms,
        placement=planned,
        times=LayoutCosts(placement=planned, max_error=inf),
        mixture=mixture,
    )
    plan = mixed_plan(problem, "chosen", "auto")[0].plan
    calls = {c.name: (c.candidate.implementation, c.candidate.forms) for c in plan.calls}
    powers = mixture.powers(prepared.fused, calls)
    predicted_db = noise.sqnr_db(noise.total((each, 1.0) for each in powers.values()))
    assert any("winograd" in name and "bfloat16" in name for name, _ in calls.values())
    given = [X[n : n + 1] for n in (1, 3, 5)]
    with NetworkWorker(local_placement()) as worker:
        worker.compile(plan, prepared.graph.constants, tmp_path)
        worker.load("mixed", tmp_path, plan.constant_names)
        ours = [worker.run("mixed", [each]) for each in given]
    theirs = [[reference(path, {"x": each})["y"]] for each in given]
    shown_db = compare_runs(ours, theirs, ("y",)).sqnr_db
    assert shown_db is not None and shown_db >= 38.0
    assert shown_db == pytest.approx(predicted_db, abs=1.5)


def test_it_is_shown_as_it_was_made(made: Path) -> None:
    shown = succeed(made, "show", made / "out")
    assert shown["mixture"]["layers"] and shown["source"]["precision"] == "auto"
    assert 'class="chart mixture"' in (made / "out" / "report.html").read_text()
    text = call(made, "show", made / "out").out
    assert "Precision by layer" in text and "share of noise" in text
    assert "Layer by layer" in (made / "out" / "report.html").read_text()


LARGE = """<ir_version: 8, opset_import: ["" : 17]>
images (float[1, 16, 24, 24] x) => (float[1, 64] y)
<float[64, 16, 3, 3] a, float[64, 64, 1, 1] b, float[64, 64, 1, 1] c, float scale = {1e5}> {
  h = Conv (x, a)
  l = Mul (h, scale)
  k = Conv (l, b)
  d = Div (k, scale)
  e = Conv (d, c)
  y = ReduceMean <axes = [2, 3], keepdims = 0> (e)
}"""


@pytest.mark.skipif(not has_half_arithmetic(local_placement().target), reason="no float16 here")
def test_numbers_beyond_float16_are_named_and_in_other_types(tmp_path: Path) -> None:
    path, placement = tmp_path / "large.onnx", allowing(local_placement(), MIXED)
    write_model(path, LARGE, a=(64, 16, 3, 3), b=(64, 64, 1, 1), c=(64, 64, 1, 1))
    asked = OptimizeRequest(
        model=str(path), options=MIXED, budget=parse_budget(0), folder=tmp_path, max_error=1e-2,
        seed=0,
    )  # fmt: skip
    notes: list[str] = []
    prepared = prepare(str(path), MIXED, placement)
    found = measured_mixing(prepared, placement, asked, lambda e: notes.append(str(e)))
    fine = found.mixture.noise.of("float16").tensors
    assert not {"x", "l"} & fine.keys(), "weights of the first convolution are as large"
    assert "d" in fine and all(found.mixture.stores(name, "bfloat16") for name in ("x", "l", "d"))
    told = next(note for note in notes if "Numbers that do not fit float16" in note)
    assert "are in other types" in told and "l (up to" in told


@pytest.mark.on_request
def test_what_is_kept_stays_in_single_precision(made: Path, tmp_path: Path) -> None:
    with tilewright.open(db="memory:") as session:
        kept = session.optimize(
            made / "images.onnx", budget=0, out=tmp_path / "kept", options=MIXED,
            max_error="45dB", keep=["float32:x", "float32:g", "float32:k"],
        )  # fmt: skip
    plan = open_artifact(tmp_path / "kept").manifest.shipped_plan
    assert kept.result.mixture is not None and kept.result.mixture.kept
    assert plan.tensors["g"].form.dtype is None  # type: ignore[union-attr]


def test_an_error_that_nothing_meets_names_the_least(made: Path, tmp_path: Path) -> None:
    with (
        tilewright.open(db="memory:") as session,
        pytest.raises(NegativeVerdict, match="least error that can be had .* dB, in about") as told,
    ):
        session.optimize(
            made / "images.onnx", budget=0, out=tmp_path / "none", options=MIXED, max_error="250dB"
        )
    assert "less than the 250 dB" in told.value.message
    assert not (tmp_path / "none").exists()


def test_what_makes_no_sense_is_told_before_any_work(made: Path, tmp_path: Path) -> None:
    model = made / "images.onnx"
    with tilewright.open(db="memory:") as session:
        with pytest.raises(UsageError, match="belong to a choice of types"):
            session.optimize(model, budget=0, out=tmp_path / "no", keep="float32:g")
        with pytest.raises(UsageError, match="over the whole graph"):
            session.tune(model, budget=0, out=tmp_path / "no", options=MIXED)
    unchosen = call(made, "compare", model, "--precision", "auto", "--db", "memory:")
    assert unchosen.code == 2 and "optimize MODEL --precision auto` first" in unchosen.err
    wrong = call(made, "optimize", model, "--precision", "auto", "--keep", "int8:g")
    assert wrong.code == 2 and "float32 is the only type" in wrong.err

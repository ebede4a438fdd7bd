"""A task that ONNX Runtime was measured to compute faster, through the verbs. Which kernel and
which network is faster is made up, so that no time decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import call, reference
from tilewright.compiler.builders.registry import builder_for
from tilewright.core.events import Event, Note
from tilewright.core.records import Candidate, Measurement, Protocol
from tilewright.core.results import TaskReport
from tilewright.core.timings import Timing
from tilewright.deploy import artifact as artifacts
from tilewright.deploy import racing
from tilewright.deploy.opening import open_artifact
from tilewright.kernels import island
from tilewright.kernels.spaces import default_candidate
from tilewright.models import ModelOptions
from tilewright.plan.preparation import prepare
from tilewright.session import Session

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
two (float[128, 256] x) => (float[128, 64] y) <float[256, 256] a, float[256, 64] b>
{ h = MatMul(x, a)  g = Relu(h)  s = MatMul(g, b)  y = Softmax(s) }"""
X = np.random.default_rng(2).standard_normal((128, 256)).astype(np.float32)
OPTIONS = ModelOptions(libraries=island.NAME)
OWN_S, LIBRARY_S = 3e-3, 1e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("a", (256, 256)), ("b", (256, 64))):
        values = rng.standard_normal(shape).astype(np.float32) / 16
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path_factory.mktemp("libraries") / "two.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def session(model: Path, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch):
    """A session whose database has the first layer three times as fast in ONNX Runtime, and races
    that the default settings lose."""

    def timed(runners: Mapping[str, object], **_rounds: object) -> dict[str, Timing]:
        return {n: Timing(rounds_s=((2e-3 if n == "default" else 1e-3,),) * 5) for n in runners}

    monkeypatch.setattr(racing.network_timing, "time_together", timed)

    def listen(event: Event) -> None:
        said.extend([event.message] if isinstance(event, Note) else [])

    with tilewright.open(db=tmp_path / "a.db", threads=1, events=listen) as opened:
        remember(opened, model)
        yield opened


def remember(session: Session, model: Path) -> None:
    placement, store = session.placement, session.store
    network = prepare(str(model), ModelOptions(), placement)
    task = next(t for t in network.tasks.values() if t.workload.result.shape == (128, 256))
    own, _ = default_candidate(task.workload, task.forms, placement)
    library = Candidate(implementation=island.NAME, settings=(), forms=task.forms)
    store.add_device(placement.device)
    store.add_workloads([task.workload])
    on = placement.target, placement.resources
    for candidate, seconds in ((own, OWN_S), (library, LIBRARY_S)):
        measurement = Measurement(
            workload_key=task.workload.key,
            candidate=candidate,
            device_class=placement.device.class_key,
            resources=placement.resources,
            protocol=Protocol(),
            kernel_hash=builder_for(candidate).identify(task.workload, candidate, *on),
            samples_s=(seconds,) * 5,
            build_s=0.0,
        )
        store.add([measurement])


def given_away(made: tilewright.OptimizedNetwork) -> list[TaskReport]:
    return [t for t in made.result.tasks if t.implementation == island.NAME]


def test_one_that_was_faster_is_shipped_shown_and_run_where_that_is_allowed(
    session: Session, model: Path, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    made = session.optimize(model, budget=0, out=out, options=OPTIONS)
    assert any("only where it was measured to be faster" in note for note in said), (
        "the second layer was never measured in the library"
    )
    (task,) = given_away(made)
    assert (task.rival, task.rival_s, task.latency_s) == ("dense_packed", OWN_S, LIBRARY_S)
    assert task.error is not None and task.in_place_s is not None and not task.island
    assert made.result.max_rel_error < 1e-4
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["versions"]["onnxruntime"] and len(open_artifact(out).islands) == 1
    loaded = tilewright.load(out, threads=1)
    assert "it takes 1 ms for a call, dense_packed 3 ms" in loaded.islands[0]
    for x in (X, -X):
        wanted = reference(model, {"x": x})["y"]
        np.testing.assert_allclose(loaded(x), wanted, rtol=1e-4, atol=1e-5)
    np.save(tmp_path / "x.npy", X)
    run = ("run", out, "--input", tmp_path / "x.npy", "--threads", "1")
    for words in (("show", out), (*run, "--out", tmp_path / "results")):
        done = call(tmp_path, *words)
        told = " ".join((done.out + done.err).split())
        assert done.code == 0 and "ONNX Runtime computes" in told and "dense_packed 3 ms" in told
    assert not given_away(session.optimize(model, budget=0, out=tmp_path / "again"))
    monkeypatch.setattr(island, "find_spec", lambda _name: None)
    with pytest.raises(tilewright.TargetError, match="onnxruntime is not installed") as caught:
        tilewright.load(out)
    assert caught.value.hint == "pip install onnxruntime"
    monkeypatch.setattr(artifacts, "in_this_process", lambda _placement: False)
    with pytest.raises(tilewright.TargetError, match="is not on the device"):
        artifacts.refuse_elsewhere(open_artifact(out), session.placement)


def test_an_unknown_one_is_a_mistake_in_the_command(model: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "optimize", model, "--libraries", "onednn", "--out", tmp_path / "out")
    assert done.code == 2 and "no library is called 'onednn'" in done.err
    assert "onnxruntime" in done.err and not (tmp_path / "out").exists()

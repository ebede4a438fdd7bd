"""Networks with islands, through the verbs: what cannot be compiled is left to ONNX Runtime, which
is told wherever such a network is made, compared and run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from helpers.commands.command_line import reference, run, succeed
from helpers.networks.onnx_models import session_of

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
detector (float[1, 3, 8, 8] x) => (float[1, 5] scores, int64[kept, 3] chosen, float[kept, 4] boxes)
<float[4, 3, 3, 3] w, float[64, 20] to_boxes, float[64, 5] to_scores, int64[2] flat = {1, 64},
 int64[3] some = {1, 5, 4}, int64[1] most = {3}, float[1] overlap = {0.5}, float[1] least = {0.1},
 int64[1] two = {2}, int64[1] three = {3}, int64[1] one = {1}, int64[2] both = {-1, 4}> {
    c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w)
    r = Relu(c)  f = Reshape(r, flat)
    b = MatMul(f, to_boxes)  every = Reshape(b, some)
    s = MatMul(f, to_scores)  scores = Softmax(s)
    classes = Unsqueeze(scores, one)
    chosen = NonMaxSuppression(every, classes, most, overlap, least)
    places = Slice(chosen, two, three, one)  index = Squeeze(places, one)
    list = Reshape(every, both)  boxes = Gather(list, index) }"""
X = np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    named = {value.name: value for value in made.graph.initializer}
    for name, shape in (("w", (4, 3, 3, 3)), ("to_boxes", (64, 20)), ("to_scores", (64, 5))):
        values = rng.standard_normal(shape).astype(np.float32) / 4
        named.get(name, made.graph.initializer.add()).CopyFrom(
            onnx.numpy_helper.from_array(values, name)
        )
    path = tmp_path_factory.mktemp("islands") / "detector.onnx"
    onnx.save(made, path)
    return path


def right(found: dict[str, np.ndarray], model: Path, x: np.ndarray) -> None:
    wanted = reference(model, {"x": x})
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].shape == array.shape and found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_outputs_of_any_length(model: Path) -> None:
    network = tilewright.compile(model)
    (sentence,) = network.islands
    assert "ONNX Runtime computes" in sentence and "NonMaxSuppression" in sentence
    lengths = set()
    for size in (0.01, 1.0, 4.0, 9.0):
        found = network.run({"x": size * X})
        right(found, model, size * X)
        lengths.add(len(found["chosen"]))
    assert len(lengths) > 1, "the inputs tell nothing: as many boxes each time"


def test_made_run_shown_and_compared(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = succeed(tmp_path, "optimize", model, "--budget", "0", "--out", out)
    islands = [task for task in made["tasks"] if task["island"]]
    assert islands and all(task["implementation"] == "onnxruntime" for task in islands)
    assert "NonMaxSuppression" in islands[0]["island"] and len(islands[0]["nodes"]) > 1
    assert sum(task["share"] for task in islands) > 0 and made["max_rel_error"] < 1e-4
    assert [port.shape for port in tilewright.load(out)._outputs][1:] == [(-1, 3), (-1, 4)]
    right(tilewright.load(out).run({"x": X}), model, X)
    np.save(tmp_path / "x.npy", X)
    for words in (
        ("show", out),
        ("compare", out, "--peers", "onnxruntime"),
        ("run", out, "--input", tmp_path / "x.npy", "--out", tmp_path / "results"),
    ):
        done = run(tmp_path, *words)
        assert done.code == 0, done.err
        told = " ".join((done.out + done.err).split())
        assert "ONNX Runtime computes" in told and "of the time" in told
    assert np.load(tmp_path / "results" / "boxes.npy").shape[1] == 4


def test_refused_where_that_is_asked_for(model: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "optimize", model, "--islands", "refuse", "--out", tmp_path / "out")
    assert done.code == 4 and "NonMaxSuppression" in done.err
    assert not (tmp_path / "out").exists()
    options = tilewright.ModelOptions(islands="refuse")
    with pytest.raises(tilewright.ModelError, match="NonMaxSuppression"):
        tilewright.compile(model, options=options)
    with pytest.raises(tilewright.UsageError, match="islands is 'allow'"):
        tilewright.ModelOptions(islands="allow")  # pyright: ignore[reportArgumentType]


def test_one_that_fails_says_so_and_the_next_run_is_right() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        taken (float[4, 3] x, float[6] i) => (float[m, 3] y, float[4, 3] z)
        { found = NonZero(i)  one = Constant<value_ints = [0]>()  flat = Squeeze(found, one)
          y = Gather(x, flat)  z = Tanh(x) }"""
    network = tilewright.compile(onnx.parser.parse_model(text))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    fine, wrong = np.zeros(6, np.float32), np.zeros(6, np.float32)
    fine[[1, 3]] = 1
    wrong[5] = 1
    for _ in range(2):
        np.testing.assert_array_equal(network.run({"x": x, "i": fine})["y"], x[[1, 3]])
        with pytest.raises(tilewright.InputError, match=r"island of .*NonZero.*fails"):
            network.run({"x": x, "i": wrong})


def test_an_operand_that_is_read_twice() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        twice (float[2, 3, 4] x) => (float[k] y)
        { a = Flatten<axis = 1>(x)  s = Constant<value_ints = [2, 12]>()  b = Reshape(x, s)
          n = NonZero(a)  p = Transpose(n)  y = GatherND(b, p) }"""
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    found = tilewright.compile(onnx.parser.parse_model(text)).run({"x": x})
    np.testing.assert_array_equal(found["y"], x[x != 0])


def test_equal_islands_of_which_other_results_are_read() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
        two (float[1, 2] a, float[1, 2] b) => (int64[1] first, float[1, 2] second)
        { first, s = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 0.0, 0.0, 1.0],
            intercepts = [0.0, 0.0], classlabels_ints = [3, 7]>(a)
          l, second = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 0.0, 0.0, 1.0],
            intercepts = [0.0, 0.0], classlabels_ints = [3, 7]>(b) }"""
    model = onnx.parser.parse_model(text)
    network = tilewright.compile(model)
    for scale in (1.0, -2.0):
        feed = {
            "a": scale * np.array([[0.0, 1.0]], np.float32),
            "b": scale * np.array([[5.0, 2.0]], np.float32),
        }
        found, wanted = network.run(feed), session_of(model).run(None, feed)
        np.testing.assert_array_equal(found["first"], wanted[0])
        np.testing.assert_allclose(found["second"], wanted[1])

"""One artifact for several shapes: made, shown, loaded, run padded, replaced."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec import structs

import tilewright
from helpers.commands.command_line import ALL, answer, call, know_machine, reference
from helpers.commands.made_once import made_once
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.core.weights import WEIGHTS, reference_in
from tilewright.deploy.artifact import Artifact, ShapedArtifact
from tilewright.deploy.shape_set import read_shape_set, write_shape_set
from tilewright.hardware.probe import allotted_cpus
from tilewright.serving.networks import open_served

ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
encoder (int64[rows, tokens] ids, int64[rows, tokens] mask) => (float[rows, tokens, 24] y)
<float[50, 32] table, float[32, 32] wq, float[32, 24] wy, float one = {1}, float low = {-10000},
 int64[1] first = {1}> {
    e = Gather(table, ids)  q = MatMul(e, wq)  k = Transpose<perm = [0, 2, 1]>(e)
    s = MatMul(q, k)  seen = Cast<to = 1>(mask)  unseen = Sub(one, seen)  added = Mul(unseen, low)
    bias = Unsqueeze(added, first)  t = Add(s, bias)  p = Softmax(t)  c = MatMul(p, e)
    y = MatMul(c, wy) }"""
"""Attention in which `mask` hides tokens."""


def saved(path: Path, text: str = ENCODER) -> Path:
    made = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("table", (50, 32)), ("wq", (32, 32)), ("wy", (32, 24))):
        values = rng.standard_normal(shape).astype(np.float32) / 6
        tensor = next((t for t in made.graph.initializer if t.name == name), None)
        tensor = tensor if tensor is not None else made.graph.initializer.add()
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact for batches of 1 and 3 rows of 8 tokens."""
    return made_once(tmp_path_factory, "shapes", make)


def make(place: Path) -> None:
    model = saved(place / "encoder.onnx")
    words = ("--batch", "1,3", "--shape", "tokens=8", "--budget", "0", "--out", place / "out")
    told = answer(place, "optimize", model, *words)
    assert [row["shape"] for row in told["shapes"]] == ["batch 1", "batch 3"]
    assert told["padded"] == ["batch"] and all(r["max_rel_error"] < 1e-4 for r in told["shapes"])
    # the table at least is there once; whether others are depends on times
    table = 50 * 32 * 4
    assert told["size_bytes"] < sum(row["alone_bytes"] for row in told["shapes"]) - 0.9 * table


def inputs(rows: int, tokens: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    ids = rng.integers(-50, 50, (rows, tokens))
    return {"ids": ids, "mask": np.ones((rows, tokens), np.int64)}


def right(found: dict[str, np.ndarray], place: Path, given: dict[str, np.ndarray]) -> None:
    wanted = reference(place / "encoder.onnx", given)["y"]
    assert found["y"].shape == wanted.shape
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)


def test_loaded(made: Path) -> None:
    network = tilewright.load(made / "out")
    assert isinstance(network, ShapedArtifact)
    for rows in (1, 2, 3):
        right(network.run(inputs(rows)), made, inputs(rows))
        right({"y": network(*inputs(rows).values())}, made, inputs(rows))
    assert str(network.choice(inputs(2))) == "batch 2 run as batch 3, padded"
    right(network.run({n: array.tolist() for n, array in inputs(2).items()}), made, inputs(2))
    right(network.artifact(batch=3).run(inputs(3)), made, inputs(3))
    assert network.threads == network.artifact(batch=3).threads and network.islands == ()
    assert "batch 1, 3" in repr(network) and "encoder" in network._repr_html_()
    for given, said in (
        (inputs(4), "batch is 4, larger than any shape"),
        (inputs(1, 9), r"int64\[1, 9\], the network was compiled for"),
        ({"ids": inputs(1)["ids"]}, "input 'mask' is missing"),
        ({**inputs(1), "mask": np.ones(8, np.int64)}, r"'mask' is int64\[8\], .* one like"),
        ({**inputs(2), "mask": np.ones((2, 8))}, r"'mask' is float64\[2, 8\], .* one like int64"),
        ({**inputs(2), "ids": [[1], [2, 3]]}, "'ids' is no array"),
        ({name: array[:, :5] for name, array in inputs(2).items()}, r"int64\[2, 5\], which does"),
    ):
        with pytest.raises(tilewright.UsageError, match=said):
            network.run(given)
    with pytest.raises(tilewright.InputError, match="which must be -50"):
        network.run({**inputs(2), "ids": np.full((2, 8), 50)})


def test_a_shape_by_itself(made: Path) -> None:
    one = tilewright.load(made / "out/batch3")
    assert isinstance(one, Artifact) and reference_in(made / "out/batch3" / WEIGHTS) is not None
    right(one.run(inputs(3)), made, inputs(3))


def test_run_and_show(made: Path, tmp_path: Path) -> None:
    words: list[object] = []
    for name, array in inputs(2).items():
        np.save(tmp_path / f"{name}.npy", array)
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    done = call(tmp_path, "run", made / "out", *words, "--out", tmp_path)
    assert done.code == 0 and "batch 2 run as batch 3, padded" in done.err
    right({"y": np.load(tmp_path / "y.npy")}, made, inputs(2))
    assert "batch 3" in call(tmp_path, "show", made / "out").out
    profiled = call(tmp_path, "profile", made / "out", "--batch", "3", "--settings", "shipped")
    assert profiled.code == 0, profiled.err
    unnamed = call(tmp_path, "profile", made / "out")
    assert (
        unnamed.code == 2 and "none is named" in unnamed.err and "batch 1; batch 3" in unnamed.err
    )


def test_a_repeated_command(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    libraries = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.so")}
    words = ("--batch", "1,3", "--shape", "tokens=8", "--budget", "0", "--out", tmp_path / "out")
    told = answer(made, "optimize", made / "encoder.onnx", *words)
    assert [row["shape"] for row in told["shapes"]] == ["batch 1", "batch 3"]
    assert all(path.read_bytes() == content for path, content in libraries.items())
    assert len([*(tmp_path / "out").glob("weights-*")]) == 1
    right(tilewright.load(tmp_path / "out").run(inputs(2)), made, inputs(2))


def test_damaged_weights(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "out", tmp_path / "out")
    (weights,) = (tmp_path / "out").glob("weights-*.params")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(tilewright.ModelError, match="does not fit its hash in weights-"):
        tilewright.load(tmp_path / "out").run(inputs(1))
    weights.unlink()
    with pytest.raises(tilewright.ModelError, match="lacks weights-"):
        tilewright.load(tmp_path / "out")


def test_padding_that_changes_results_is_refused(tmp_path: Path) -> None:
    text = ENCODER.replace("t = Add(s, bias)  p = Softmax(t)", "p = Softmax(s)")
    know_machine(tmp_path / "known.db")
    model = saved(tmp_path / "encoder.onnx", text)
    words = ("--batch", 1, "--shape", "tokens=4,8", "--pad", "tokens", "--budget", "0")
    done = call(tmp_path, "optimize", model, *words, "--out", tmp_path / "out")
    assert done.code == 0 and "tokens is not padded, because it changes results" in done.err
    network = tilewright.load(tmp_path / "out")
    right(network.run(inputs(1, 4)), tmp_path, inputs(1, 4))
    with pytest.raises(tilewright.UsageError, match=r"tokens is 5: .* is not padded, because it"):
        network.run(inputs(1, 5))
    # an artifact of one shape replaces it, and leaves nothing behind
    shape = ("--batch", 1, "--shape", "tokens=4", "--budget", "0")
    assert call(tmp_path, "optimize", model, *shape, "--out", tmp_path / "out").code == 0
    assert isinstance(tilewright.load(tmp_path / "out"), Artifact)
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left <= {"model.so", WEIGHTS, "manifest.json", "report.html", "layouts.onnx"}


def test_served_in_batches(made: Path) -> None:
    """Three requests that wait run as the batch of three, bit for bit."""
    given = inputs(3)
    with tilewright.serve({"a": made / "out"}, instances="1x1") as server:
        pid = server.statistics().instances[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        first = server.submit("a", inputs(1))
        while server.statistics().waiting:
            pass
        rows = [{name: each[n : n + 1] for name, each in given.items()} for n in range(3)]
        answers = [server.submit("a", row) for row in rows]
        os.kill(pid, signal.SIGCONT)
        found = np.concatenate([answer.result(60) for answer in answers])
        np.testing.assert_array_equal(
            found, tilewright.load(made / "out", threads=1).run(given)["y"]
        )
        np.testing.assert_array_equal(
            first.result(), tilewright.load(made / "out" / "batch1", threads=1)(**inputs(1))
        )
        assert server.statistics().networks[0].batches == {1: 1, 3: 1}


@pytest.mark.skipif(len(allotted_cpus(affinity=ALL)) < 2, reason="two instances need two cores")
@pytest.mark.usefixtures("all_cores")
def test_served_by_unequal_instances(made: Path) -> None:
    """One instance computes one request at a time, the other one three; a request that comes when
    one was killed is answered, too."""
    rows = [{name: each[n : n + 1] for name, each in inputs(12).items()} for n in range(12)]
    direct = tilewright.load(made / "out" / "batch1", threads=1)
    wanted = [direct(**row) for row in rows]
    with tilewright.serve({"a": made / "out"}, instances="1x1@1,1x1@3:a") as server:
        for _ in range(3):
            answers = [server.submit("a", row) for row in rows]
            for answer, each in zip(answers, wanted, strict=True):
                np.testing.assert_allclose(answer.result(60), each, rtol=1e-4, atol=1e-5)
            pid = server.statistics().instances[1].pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        statistics = server.statistics()
    assert statistics.networks[0].answered == 36 and statistics.networks[0].batches.keys() <= {
        1,
        2,
        3,
    }
    assert [(each.batch, each.networks) for each in statistics.instances] == [(1, ()), (3, ("a",))]
    with pytest.raises(UsageError, match="instances are for 'b', which is not served"):
        tilewright.serve({"a": made / "out"}, instances="1x1:b")
    with pytest.raises(UsageError, match="A burst is what instances .* are chosen for"):
        tilewright.serve({"a": made / "out"}, instances="1x1", burst=2)


def test_instances_are_chosen_for_a_burst(made: Path) -> None:
    """The command says what was weighed, with what was measured of it."""
    words = ("--load", "200ms", "--burst", "4", "--deadline", "out=5s")
    told = answer(made, "serve", "out", *words)
    options = told["options"]
    assert options and all(option["seconds"] > 0 for option in options)
    assert sum(option["chosen"] for option in options) <= 1
    assert any(option["measured"] for option in options)
    assert options[0]["kinds"][0].keys() == {"count", "cores", "batch", "networks"}


def test_nobody_has_rows_of_others_in_an_answer(tmp_path: Path) -> None:
    """Zeros behind the last row change no sum over all rows: it may be padded, and not served in
    batches."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    mixing (float[rows, 8] x) => (float[rows, 8] y) <int64[1] first = {0}> {
        s = ReduceSum(x, first)  y = Add(x, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "mixing.onnx")
    words = ("--batch", "1,2", "--budget", "0", "--out", tmp_path / "out")
    assert answer(tmp_path, "optimize", tmp_path / "mixing.onnx", *words)["padded"] == ["batch"]
    notes: list[Event] = []
    with tilewright.serve({"a": tmp_path / "out"}, instances="1x1", events=notes.append) as server:
        assert server.largest_batch == 1
        x = np.ones((1, 8), np.float32)
        np.testing.assert_array_equal(server.submit("a", x=x).result(60), 2 * x)
    (note,) = (each for each in notes if isinstance(each, Note))
    assert "'a' cannot be put together, because results in a batch of 2" in note.message


def test_what_is_not_put_together(made: Path, tmp_path: Path) -> None:
    for wished, sizes in ((None, (1, 3)), ((1, 3), (1, 3)), (1, (1,))):
        (served,) = open_served({"a": made / "out"}, wished)
        assert served.batches.sizes == sizes and served.inputs[0].shape[0] == 1
    with pytest.raises(UsageError, match=r"no artifact has a batch of 2 (.|\n)*1, 3"):
        open_served({"a": made / "out"}, (1, 2))
    with pytest.raises(UsageError, match=r"batches are for artifacts, not for a plan(.|\n)*Leave"):
        tilewright.serve(tmp_path, batches=1)
    copy = Path(shutil.copytree(made / "out", tmp_path / "out"))
    shapes = read_shape_set(copy)
    (axis,) = (axis for axis in shapes.axes if axis.name == "batch")
    apart = structs.replace(axis, pads=False, reason="because results differ")
    write_shape_set(copy, structs.replace(shapes, axes=(apart,)))
    notes: list[Event] = []
    assert open_served({"a": copy}, events=notes.append)[0].batches.sizes == (1,)
    assert isinstance(notes[0], Note) and "because results differ" in notes[0].message
    with pytest.raises(UsageError, match="cannot be put together, because results differ"):
        open_served({"a": copy}, 3)
    assert open_served({"a": copy}, 1)[0].batches.sizes == (1,)
    tokens = [structs.replace(m, sizes={"tokens": m.sizes["batch"]}) for m in shapes.members]
    axes = (structs.replace(axis, name="tokens"),)
    write_shape_set(copy, structs.replace(shapes, axes=axes, members=tuple(tokens)))
    with pytest.raises(UsageError, match="holds several shapes"):
        open_served({"a": copy})

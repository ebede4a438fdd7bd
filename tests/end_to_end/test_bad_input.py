"""Models, names and targets that cannot be used, through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from helpers.commands.command_line import Done, run, small_model, succeed
from tilewright.report.vega import libraries


def refused(folder: Path, code: int, *words: object) -> str:
    """The error of `optimize WORDS…`; nothing is left behind."""
    done: Done = run(folder, "optimize", *words, "--budget", "0", "--format", "json")
    assert done.code == code, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert not (folder / "tilewright-out").exists()
    return done.err


def test_no_such_file_and_close_matches(tmp_path: Path) -> None:
    small_model(tmp_path / "network.onnx", filters=(4,))
    error = refused(tmp_path, 4, "netwrk.onnx")
    assert "netwrk.onnx" in error and "network.onnx" in error


@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x08\x07\x12\x00" * 40])
def test_files_that_are_no_models(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    assert "bad.onnx" in refused(tmp_path, 4, "bad.onnx")


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = small_model(tmp_path / "net.onnx")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "net.onnx" in refused(tmp_path, 4, "net.onnx")


def externalized(path: Path, location: str) -> None:
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("location", ["missing.bin", "../outside.bin", "/etc/hostname"])
def test_external_weights_missing_or_outside(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(b"\0" * 10_000)
    externalized(small_model(folder / "net.onnx", filters=(4,)), location)
    assert location in refused(folder, 4, "net.onnx")


def unknown_operator(path: Path, domain: str = "") -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="strange", domain=domain)
    shape = [1, 4]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("their.own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), path)


@pytest.mark.parametrize("domain", ["", "their.own"])
def test_unknown_operators_are_named_with_their_node(tmp_path: Path, domain: str) -> None:
    unknown_operator(tmp_path / "net.onnx", domain)
    error = refused(tmp_path, 4, "net.onnx")
    assert "Frobnicate" in error and "strange" in error


def test_unbound_axes_are_named(tmp_path: Path) -> None:
    path = small_model(tmp_path / "net.onnx", filters=(4,))
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    onnx.save(model, path)
    error = refused(tmp_path, 4, "net.onnx")
    assert "batch" in error and "height" in error and "--shape" in error
    data = succeed(
        tmp_path, "optimize", "net.onnx", "--budget", "0", "--shape", "x=2,3,9,12", "--out", "o"
    )
    assert data["max_rel_error"] <= 1e-4


@pytest.mark.parametrize(
    ("words", "code", "known"),
    [
        (("zoo:resnet81",), 4, "resnet18"),
        (("op:conv3000d[n=1]",), 4, "conv"),
        (("net.onnx", "--target", '{"kind": "lvm"}'), 3, "lvm"),
        (("net.onnx", "--target", "nonsense"), 3, "nonsense"),
        (("net.onnx", "--shape", "z=1,3,12,12"), 2, "z"),
        (("net.onnx", "--shape", "x=1,3"), 4, "x"),
        (("net.onnx", "--threads", "0"), 2, "threads"),
        (("net.onnx", "--max-error", "nan"), 2, "max-error"),
    ],
)
def test_names_targets_and_flags(tmp_path: Path, words, code: int, known: str) -> None:
    small_model(tmp_path / "net.onnx", filters=(4,))
    done = run(tmp_path, "optimize", *words, "--budget", "0")
    assert done.code in ({code, 2} if code == 4 else {code}), done.err
    assert known in done.err and "Traceback" not in done.err


@pytest.mark.parametrize("budget", ["ten", "-1", "1.5", "inf", ""])
def test_budgets_that_are_none(tmp_path: Path, budget: str) -> None:
    small_model(tmp_path / "net.onnx", filters=(4,))
    done = run(tmp_path, "optimize", "net.onnx", f"--budget={budget}")
    assert done.code == 2, done.err
    assert "Traceback" not in done.err


SCRIPT, ESCAPE = "<script>alert(1)</script>", "\x1b]0;owned\x07\x1b[31m"
NAMES = {
    "conv0": SCRIPT,
    "conv1": ESCAPE + '"><img src=x onerror=alert(2)>',
    "c0": "../../../etc/passwd",
    "r0": SCRIPT + ESCAPE,
    "x": f"{ESCAPE}<b>",
    "y": "y\u202eevil\r\nerror: fake",
}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model whose every name is an attack."""
    return small_model(tmp_path / f"<img src=x>{chr(27)}[2J.onnx", names=NAMES)


def harmless(done: Done) -> None:
    assert done.code == 0, done.err
    for text in (done.out, done.err):
        assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text


def test_hostile_names_stay_harmless_in_a_report(tmp_path: Path, hostile: Path) -> None:
    harmless(run(tmp_path, "optimize", hostile, "--budget", "2", "--out", "out"))
    report = (tmp_path / "out" / "report.html").read_text()
    assert report.count(libraries()) == 1
    report = report.replace(libraries(), "")  # they write tags of their own
    for tag in ("<script>alert", "<img", "\x1b", "\u202e", "\x07"):
        assert tag not in report
    assert "&lt;script&gt;alert" in report or "\\u003cscript" in report


def test_hostile_names_stay_harmless_in_a_profile(tmp_path: Path, hostile: Path) -> None:
    harmless(run(tmp_path, "profile", hostile))


@pytest.mark.parametrize("kind", ["json", "csv", "md"])
def test_hostile_names_stay_harmless_in_data(tmp_path: Path, hostile: Path, kind: str) -> None:
    harmless(run(tmp_path, "predict", hostile, "--format", kind))


def test_a_hostile_argument_stays_harmless(tmp_path: Path) -> None:
    done = run(tmp_path, "optimize", "zoo:\x1b[31mnone", "--budget", "0")
    assert done.code in (2, 4) and "\x1b" not in done.err


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_half_precision_and_doubles_work_or_are_named(tmp_path: Path, kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = numpy_helper.from_array(np.ones((4, 3), dtype), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 4])],
        [helper.make_tensor_value_info("y", kind, [2, 3])],
        [weight],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "net.onnx",
    )
    done = run(tmp_path, "optimize", "net.onnx", "--budget", "0", "--max-error", "0.01")
    assert done.code in (0, 4), done.err
    assert "Traceback" not in done.err

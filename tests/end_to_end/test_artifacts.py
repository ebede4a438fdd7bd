"""Loading artifacts: what is refused, and what a replaced one does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from helpers.commands.command_line import (
    environment,
    optimize_small_model,
    reference,
    run,
    small_model,
    succeed,
)
from helpers.commands.made_once import made_once
from helpers.processes.forking import in_child
from helpers.records.written_artifacts import write_content
from tilewright.core.errors import InputError, ModelError, TargetError, UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "small artifact", optimize_small_model)


@pytest.fixture
def artifact(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "out", tmp_path / "out"))


def content_of(artifact: Path) -> dict[str, Any]:
    return json.loads((artifact / "manifest.json").read_text())


def edit(artifact: Path, **changed: Any) -> None:
    """Change a manifest, and its hash with it."""
    content = content_of(artifact)
    for key, value in changed.items():
        old = content[key]
        content[key] = {**old, **value} if isinstance(old, dict) else value
    write_content(artifact, content)


def test_another_instruction_set(artifact: Path) -> None:
    features = [*content_of(artifact)["machine"]["features"], "avx9000"]
    edit(artifact, machine={"features": features})
    with pytest.raises(TargetError, match="avx9000"):
        tilewright.load(artifact)
    edit(artifact, machine={"architecture": "vax"})
    with pytest.raises(TargetError, match="vax"):
        tilewright.load(artifact)


@pytest.mark.parametrize("package", ["apache-tvm", "apache-tvm-ffi"])
def test_another_tvm(artifact: Path, package: str) -> None:
    edit(artifact, versions={package: "0.1"})
    with pytest.raises(TargetError, match=f"{package} 0.1") as caught:
        tilewright.load(artifact)
    assert "optimize" in str(caught.value)


@pytest.mark.parametrize("name", ["model.so", "weights.params"])
@pytest.mark.parametrize("keep", [0, 100, 0.5])
def test_damaged_files_are_refused_by_name(artifact: Path, name: str, keep: float) -> None:
    """In a process of its own: a damaged library may take its process down."""
    path = artifact / name
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else int(keep)])
    done = subprocess.run(
        [sys.executable, "-c", f"import tilewright; tilewright.load({str(artifact)!r})"],
        capture_output=True, text=True, env=environment(artifact.parent),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "ModelError" in done.stderr
    assert "optimize" in done.stderr


@pytest.mark.parametrize("name", ["model.so", "weights.params"])
def test_compare_refuses_damaged_files(artifact: Path, name: str) -> None:
    (artifact / name).write_bytes(b"")
    with (
        tilewright.open(db=artifact.parent / "compare.db") as session,
        pytest.raises(ModelError, match=f"cut short in {name}"),
    ):
        session.compare([str(artifact)], peers=["onnxruntime"])


@pytest.mark.parametrize("name", ["model.so", "weights.params", "manifest.json"])
def test_missing_files(artifact: Path, name: str) -> None:
    (artifact / name).unlink()
    with pytest.raises(ModelError, match=name):
        tilewright.load(artifact)


@pytest.mark.parametrize("key", ["machine", "versions", "constants", "inputs", "outputs"])
def test_a_manifest_with_a_part_missing(artifact: Path, key: str) -> None:
    content = content_of(artifact)
    del content[key]
    write_content(artifact, content)
    with pytest.raises(ModelError, match=key):
        tilewright.load(artifact)


def test_a_manifest_with_other_constants(artifact: Path) -> None:
    """As many as there are weights, in the order of the library, or nothing is loaded."""
    constants = content_of(artifact)["constants"]
    assert len(constants) > 1
    for changed in ([], constants[::-1], constants[:-1], constants[1:], [*constants, "w"]):
        edit(artifact, constants=changed)
        with pytest.raises(ModelError, match="is damaged"):
            tilewright.load(artifact)
    with (
        tilewright.open(db=artifact.parent / "compare.db") as session,
        pytest.raises(ModelError, match="is damaged"),
    ):
        session.compare([str(artifact)], peers=["onnxruntime"])


def test_a_manifest_with_other_inputs_and_outputs(artifact: Path) -> None:
    (given,), (made,) = content_of(artifact)["inputs"], content_of(artifact)["outputs"]
    x = np.ones((1, 3, 12, 12), np.float32)
    edit(artifact, inputs=[given, {**given, "name": "z"}])
    with pytest.raises(ModelError, match="number of inputs"):
        tilewright.load(artifact)
    edit(artifact, inputs=[{**given, "shape": [1, 3, 12, 13]}])
    with pytest.raises(ModelError, match="is damaged"):
        tilewright.load(artifact)(np.ones((1, 3, 12, 13), np.float32))
    for outputs in ([made, {**made, "name": "z"}], [{**made, "shape": [1, 16, 144]}]):
        edit(artifact, inputs=[given], outputs=outputs)
        with pytest.raises(ModelError, match="gave other outputs"):
            tilewright.load(artifact)(x)


@pytest.mark.parametrize("name", ["model.so", "weights.params"])
def test_flipped_bits_are_refused_by_name(artifact: Path, name: str) -> None:
    content = bytearray((artifact / name).read_bytes())
    content[-9] ^= 1
    (artifact / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"does not fit its hash in {name}"):
        tilewright.load(artifact)
    with tilewright.open(db=artifact.parent / "flipped.db") as session:
        for verb in (session.profile, lambda model: session.compare([model])):
            with pytest.raises(ModelError, match=name):
                verb(str(artifact))
    if name == "weights.params":
        tilewright.load(artifact, verify=False)


def test_a_process_made_by_fork_calls_and_loads(all_cores: None, artifact: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12), np.float32)
    network = tilewright.load(artifact)
    wanted = network(x)

    def child() -> None:
        np.testing.assert_array_equal(network(x), wanted)
        np.testing.assert_array_equal(tilewright.load(artifact)(x), wanted)

    in_child(child)
    np.testing.assert_array_equal(network(x), wanted)


def test_inputs_are_checked(artifact: Path) -> None:
    loaded = tilewright.load(artifact)
    good = np.ones((1, 3, 12, 12), np.float32)
    assert loaded(good).shape == loaded(x=good).shape == (1, 16, 12, 12)
    for wrong in (good[0], good.astype(np.float64), np.ones((1, 3, 12, 13), np.float32)):
        with pytest.raises(UsageError, match="'x'"):
            loaded(wrong)
    with pytest.raises(UsageError, match="missing"):
        loaded()
    with pytest.raises(UsageError, match="2 arrays"):
        loaded(good, good)
    with pytest.raises(UsageError, match="'z'"):
        loaded(good, z=good)
    turned = np.ones((1, 12, 12, 3), np.float32).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(loaded(turned), loaded(good))


def test_an_index_out_of_range_is_named(tmp_path: Path) -> None:
    """At the border which input, which value and which range; inside which node, and before any
    wrong row comes out; an artifact of before knows no ranges and is still safe."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["cast"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "cast"], ["words"], name="words"),
        helper.make_node("Add", ["ids", "two"], ["next"]),
        helper.make_node("Gather", ["longer", "next"], ["places"], name="places"),
    ]
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4])
        for name in ("words", "places")
    ]
    table = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    constants = {"table": table[:200], "longer": table[:201], "two": np.array(2)}
    graph = helper.make_graph(
        nodes,
        "embedding",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [3])],
        results,
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "embedding.onnx")
    succeed(tmp_path, "optimize", "embedding.onnx", "--budget", "0", "--out", "out")
    network = tilewright.load(tmp_path / "out")
    np.testing.assert_array_equal(network(np.array([0, -3, 198]))["words"], table[[0, 197, 198]])
    for wrong in (200, 5000, -201):
        with pytest.raises(InputError, match=rf"'ids' is {wrong} at \[1\].*-200 … 199"):
            network(np.array([0, wrong, 1]))
    with pytest.raises(InputError, match=r"index that is not in -201 … 200"):
        network(np.array([0, 199, 1]))
    np.save(tmp_path / "ids.npy", np.array([0, 5000, 1]))
    done = run(tmp_path, "run", "out", "--input", "ids.npy")
    assert done.code == 4 and "5000" in done.err and "-200 … 199" in done.err
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["inputs"][0].pop("index_ranges") == [[-200, 199]]
    edit(tmp_path / "out", inputs=manifest["inputs"])
    with pytest.raises(InputError, match="index that is not in"):
        tilewright.load(tmp_path / "out")(np.array([0, 5000, 1]))


def test_loaded_twice_and_replaced_meanwhile(artifact: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12), dtype=np.float32)
    old = tilewright.load(artifact)
    before = old(x)
    other = small_model(tmp_path / "other.onnx", filters=(4, 8, 16))
    done = run(tmp_path, "optimize", "other.onnx", "--budget", "0", "--out", "out")
    assert done.code == 0, done.err
    new = tilewright.load(artifact)
    wanted = reference(other, {"x": x})["y"]
    np.testing.assert_allclose(new(x), wanted, atol=1e-4 * float(np.abs(wanted).max()))
    np.testing.assert_array_equal(old(x), before)


def test_run_from_the_command_line(made: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12), dtype=np.float32)
    np.save(made / "x.npy", x)
    done = run(made, "run", "out", "--input", "x.npy", "--out", "results", "--format", "json")
    assert done.code == 0, done.err
    (file,) = (made / "results").glob("*.np[yz]")
    found = np.load(file)
    got = found["y"] if file.suffix == ".npz" else found
    np.testing.assert_array_equal(got, tilewright.load(made / "out")(x))

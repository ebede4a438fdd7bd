"""`tilewright.compile`: a network to call right away, with nothing measured and nothing written."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import numpy as np
import onnx
import pytest
import tvm

import tilewright
from helpers.commands.command_line import reference, small_model

X = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the cache and the database beside it."""
    for name in ("CACHE", "DB"):
        monkeypatch.setenv(f"TILEWRIGHT_{name}", str(tmp_path / name))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "net.onnx", filters=(4, 8))


def right(found: object, model: Path) -> None:
    wanted = reference(model, {"x": X})["y"]
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_file_is_compiled_and_called(place: Path, model: Path) -> None:
    network = tilewright.compile(model)
    assert (network.inputs, network.outputs) == (("x",), ("y",))
    right(network.run({"x": X})["y"], model)
    right(network(X), model)
    right(network(x=X), model)
    assert "net.onnx" in repr(network) and "float32[1, 3, 12, 12]" in network._repr_html_()
    assert [path.name for path in place.parent.iterdir()] == ["work"]
    assert list(place.iterdir()) == []


def test_a_model_in_memory_with_another_batch_and_threads(place: Path, model: Path) -> None:
    options = tilewright.ModelOptions(batch=2)
    network = tilewright.compile(onnx.load(model), options=options, threads=1)
    assert network.threads == 1
    both = network(np.concatenate([X, 2 * X]))
    assert isinstance(both, np.ndarray) and both.shape[0] == 2
    right(both[:1], model)
    assert [path.name for path in place.parent.iterdir()] == ["work"]


def test_any_thread_may_call_it(model: Path) -> None:
    network, found = tilewright.compile(model), []
    threads = [Thread(target=lambda: found.append(network(X))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    for one in found:
        right(one, model)


def test_an_index_out_of_range_is_named() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        rows (float[5, 4] x, int64[3] i) => (float[3, 4] y) { y = Gather<axis = 0>(x, i) }"""
    network = tilewright.compile(onnx.parser.parse_model(text))
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    np.testing.assert_array_equal(network(x, np.array([4, -5, 1])), x[[4, 0, 1]])
    with pytest.raises(tilewright.InputError, match="input 'i' is 9 at \\[1\\]"):
        network(x, np.array([0, 9, 1]))


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [("no.onnx", tilewright.ModelError, "no.onnx"), (7, tilewright.UsageError, "7 is no model"),
     ("zoo:resnet5", tilewright.UsageError, "resnet50")],
)  # fmt: skip
def test_what_is_no_model(place: Path, given: object, kind: type, words: str) -> None:
    with pytest.raises(kind) as caught:
        tilewright.compile(given)
    assert words in str(caught.value) + (caught.value.hint or "")


def test_wrong_inputs(model: Path) -> None:
    network = tilewright.compile(model)
    with pytest.raises(tilewright.UsageError, match="'y'.*'x' is missing"):
        network(y=X)
    with pytest.raises(tilewright.UsageError, match="compiled for"):
        network(X[:, :2])
    with pytest.raises(tilewright.UsageError, match="2 arrays given"):
        network(X, X)
    with pytest.raises(tilewright.UsageError, match="threads"):
        tilewright.compile(model, threads=0)


def test_a_module_of_relax_with_its_weights_and_a_free_axis(place: Path) -> None:
    from tvm import relax
    from tvm.relax.frontend import nn

    class Layers(nn.Module):
        def __init__(self) -> None:
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4, bias=False)

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return self.second(nn.op.gelu(self.first(x)))

    module, names = Layers().export_tvm({"forward": {"x": nn.spec.Tensor(["rows", 8], "float32")}})
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal(p.shape).astype(np.float32) for n, p in names}
    options = tilewright.ModelOptions(batch=3)
    network = tilewright.compile((module, weights), options=options)
    x = rng.standard_normal((3, 8)).astype(np.float32)
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    wanted = machine["forward"](*map(tvm.runtime.tensor, (x, *weights.values()))).numpy()
    np.testing.assert_allclose(network(x), wanted, rtol=1e-4, atol=1e-5)
    assert repr(network).count("tvm.IRModule") == 1 and network.inputs == ("x",)
    path = place / "module.json"
    path.write_text(tvm.ir.save_json(module))
    with pytest.raises(tilewright.ModelError, match="unbound dynamic axes: input 'x'.*'rows'"):
        tilewright.compile(path)

"""Dynamic axes, `--batch` and `--shape`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from helpers.networks.onnx_models import int64, model_of, normal, reference
from tilewright.core.errors import ModelError, UsageError
from tilewright.graph.evaluate import run_graph
from tilewright.models import LoadedModel, ModelOptions
from tilewright.models.loading import load, load_model


def two_inputs(a: list[Any], b: list[Any]) -> onnx.ModelProto:
    return model_of([helper.make_node("Add", ["a", "b"], ["y"], name="add")], {"a": a, "b": b})


def classifier(batch: int | str) -> onnx.ModelProto:
    """A flattening of a fixed size, as exporters write it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "shape"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w"], ["y"], name="fc"),
    ]
    constants = {"shape": int64(1, 12), "w": normal(12, 5)}
    return model_of(nodes, {"x": [batch, 3, 2, 2]}, constants=constants)


def shapes(model: LoadedModel) -> dict[str, tuple[int, ...]]:
    return {name: kind.shape for name, kind in model.inputs.items()}


def test_unbound_axes_are_named() -> None:
    model = two_inputs(["batch", 3, None], ["batch", 3, 4])
    with pytest.raises(ModelError) as caught:
        load_model(model, "test")
    for part in ("'a'", "0 ('batch')", "2", "'b'"):
        assert part in caught.value.message
    assert caught.value.hint == "Fix them with --shape 'a=1,3,1'"


@pytest.mark.parametrize(
    ("a", "b", "options", "hint"),
    [
        (["n", 4], ["n", 4], ModelOptions(), "--batch 1 or --shape 'a=1,4'"),
        ([None, 4], [3, 4], ModelOptions(), "--batch 1 or --shape 'a=1,4'"),
        (["n", 8, "h", "w"], [1], ModelOptions(), "--shape 'a=1,8,1,1'"),
        (["n", 8, "h", "w"], [1], ModelOptions(batch=1), "--shape 'a=1,8,1,1'"),
        ([4, "length"], [4, 1], ModelOptions(), "--shape 'a=4,1'"),
        (["n", 4], ["m", 4], ModelOptions(), "--shape 'a=1,4' --shape 'b=1,4'"),
        (["n", 4], ["m", 4], ModelOptions(batch=1), "--shape 'b=1,4'"),
    ],
    ids=str,
)
def test_the_hint_of_free_axes_names_only_what_helps(
    a: list[Any], b: list[Any], options: ModelOptions, hint: str
) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(two_inputs(a, b), "test", options)
    assert caught.value.hint == f"Fix them with {hint}"


def test_batch_binds_the_first_dynamic_axis_everywhere() -> None:
    model = load_model(two_inputs(["n", 4], ["n", 4]), "test", ModelOptions(batch=3))
    assert shapes(model) == {"a": (3, 4), "b": (3, 4)}
    model = load_model(two_inputs([None, 4], [None, 4]), "test", ModelOptions(batch=3))
    assert shapes(model) == {"a": (3, 4), "b": (3, 4)}


def test_batch_leaves_the_second_dynamic_axis_unbound() -> None:
    with pytest.raises(ModelError, match="'length'") as caught:
        load_model(two_inputs(["n", "length"], ["n", "length"]), "test", ModelOptions(batch=3))
    assert "'n'" not in caught.value.message


def test_shape_binds_shared_axes_and_wins_over_batch() -> None:
    options = ModelOptions(batch=2, shapes={"a": (5, 7)})
    model = load_model(two_inputs(["n", "length"], ["n", "length"]), "test", options)
    assert shapes(model) == {"a": (5, 7), "b": (5, 7)}
    feed = {"a": normal(5, 7), "b": normal(5, 7, seed=1)}
    np.testing.assert_array_equal(
        reference(model.onnx_path, feed)["y"], run_graph(model.graph, feed)["y"]
    )


def test_contradicting_shapes_are_refused() -> None:
    options = ModelOptions(shapes={"a": (5, 7), "b": (6, 7)})
    with pytest.raises(UsageError, match="'n'"):
        load_model(two_inputs(["n", 7], ["n", 7]), "test", options)


@pytest.mark.parametrize(
    "said", [{"batch": 0}, {"shapes": {"a": (0, 4)}}, {"shapes": {"a": (4,)}}], ids=str
)
def test_impossible_shapes_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        load_model(two_inputs(["n", 4], ["n", 4]), "test", ModelOptions(**said))


def test_unknown_input_names_near_ones() -> None:
    options = ModelOptions(shapes={"imput": (1, 4)})
    model = model_of([helper.make_node("Relu", ["input"], ["y"])], {"input": [1, 4]})
    with pytest.raises(UsageError, match="'imput'") as caught:
        load_model(model, "test", options)
    assert "'input'" in (caught.value.hint or "")


@pytest.mark.parametrize("batch", [1, "n"])
def test_another_batch_for_a_model_with_a_fixed_flattening(batch: int | str) -> None:
    if batch == "n":
        with pytest.raises(ModelError):
            load_model(classifier(batch), "test", ModelOptions(batch=4))
        return
    model = load_model(classifier(batch), "test", ModelOptions(batch=4))
    feed = {"x": normal(4, 3, 2, 2)}
    wanted = reference(model.onnx_path, feed)["y"]
    assert wanted.shape == (4, 5)
    np.testing.assert_allclose(run_graph(model.graph, feed)["y"], wanted, atol=1e-5)


def test_batch_that_would_end_up_elsewhere_is_refused() -> None:
    nodes = [
        helper.make_node("Identity", ["s"], ["t"], name="hide"),
        helper.make_node("Reshape", ["x", "t"], ["y"], name="flatten"),
    ]
    model = model_of(nodes, {"x": [1, 3, 2]}, constants={"s": int64(1, -1)})
    with pytest.raises(ModelError, match=r"batch of 1.*'y'.*\[1, 24\]"):
        load_model(model, "test", ModelOptions(batch=4))


def test_batch_is_ambiguous_when_inputs_disagree() -> None:
    with pytest.raises(ModelError, match="which axis") as caught:
        load_model(two_inputs([1, 4], [3, 4]), "test", ModelOptions(batch=2))
    assert "--shape" in (caught.value.hint or "")


def test_zoo_with_batch_and_seed() -> None:
    first, second = (load("zoo:mlp", ModelOptions(batch=3, seed=seed)) for seed in (0, 1))
    assert [kind.shape[0] for kind in first.inputs.values()] == [3]
    name = next(n for n, a in first.graph.constants.items() if a.ndim == 2)
    assert not np.array_equal(first.graph.constants[name], second.graph.constants[name])


def test_importing_the_layer_loads_nothing_heavy() -> None:
    code = (
        "import sys, tilewright.models.loading; "
        "print({'onnxruntime', 'torch', 'tvm', 'transformers'} & set(sys.modules))"
    )
    light = "import sys, tilewright.models; print('onnx' in sys.modules)"
    for text, wanted in ((code, "set()"), (light, "False")):
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == wanted

"""Several shapes of a model, and sizes of named axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from tilewright.cli.flags import ShapesFlags
from tilewright.core.errors import UsageError
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import OnnxReference
from tilewright.models.loading import load
from tilewright.models.shape_grid import ShapeGrid, axes_among

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
encoder (float[rows, tokens] x, float[rows, tokens, 2] z, float[4] tokens_per) => (float[m] y)
{ shape = Shape(x)  a = ReduceSum(z)  b = ReduceSum(tokens_per)  c = Add(a, b)
  y = Expand(c, shape) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "encoder.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return str(path)


def test_a_named_axis_gets_its_size_everywhere(model: str) -> None:
    found = load(model, ModelOptions(shapes={"tokens": (7,), "rows": (2,)}))
    assert found.inputs["x"].shape == (2, 7) and found.inputs["z"].shape == (2, 7, 2)
    assert load(model, ModelOptions(batch=3, shapes={"tokens": (7,)})).inputs["x"].shape == (3, 7)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"token": (7,)}, "no input 'token' and no such axis"),
        ({"tokens": (7, 8)}, "axis 'tokens' has one size, not"),
        ({"tokens": (7,), "x": (2, 8)}, "axis 'tokens' would be both 7 and 8"),
    ],
)
def test_sizes_that_mean_nothing(model: str, shapes: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(model, ModelOptions(batch=1, shapes=shapes))


def test_every_combination() -> None:
    grid = ShapeGrid(batch=(4, 1), axes={"tokens": (32, 16)}, pad=("tokens",))
    shapes = grid.shapes(ModelOptions(shapes={"z": (1, 2)}, seed=3))
    assert [sizes for sizes, _ in shapes] == [
        {"batch": batch, "tokens": tokens} for batch in (1, 4) for tokens in (16, 32)
    ]
    assert shapes[1][1] == ModelOptions(batch=1, shapes={"z": (1, 2), "tokens": (32,)}, seed=3)
    assert grid.padded == ("batch", "tokens")
    fixed = ShapeGrid(batch=(2,), axes={"tokens": (8, 16), "rows": (3,)})
    assert [*fixed.sizes] == ["tokens"] and fixed.shapes(ModelOptions())[1] == (
        {"tokens": 16},
        ModelOptions(batch=2, shapes={"tokens": (16,), "rows": (3,)}),
    )
    ((_, one), *_) = ShapeGrid(axes={"batch": (1, 4)}).shapes(ModelOptions())
    assert one == ModelOptions(shapes={"batch": (1,)})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": (1,)}, "one is given"),
        ({}, "one is given"),
        ({"batch": (1, 1)}, "one twice"),
        ({"batch": (0, 1)}, "batch"),
        ({"axes": {"tokens": ()}}, "no sizes"),
        ({"batch": (1, 4), "pad": ("tokens",)}, "'tokens' is to be padded"),
        ({"batch": (1, 4), "axes": {"batch": (1, 4)}}, "sizes twice"),
    ],
)
def test_no_grid(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ShapeGrid(**given)


def test_axes_are_told_from_inputs(model: str) -> None:
    shapes = {"tokens": (8, 16), "x": (1, 8), "tokens_per": (4,), "rows": (2,)}
    assert axes_among(model, shapes) == {"tokens": (8, 16)}
    assert axes_among("zoo:mlp", shapes) == {}


def test_axes_of_models_that_become_files(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exported program and an address: what lies behind them may leave axes open, too."""
    reference = OnnxReference(path=Path(model))
    monkeypatch.setattr(loading, "export", lambda *_: reference)
    monkeypatch.setattr(loading, "download", lambda *_: (reference.path, None))
    program = tmp_path / "program.pt2"
    program.write_bytes(b"")
    for argument in (str(program), "https://example.org/m.onnx#sha256=" + 64 * "0"):
        assert axes_among(argument, {"tokens": (8, 16)}) == {"tokens": (8, 16)}


def test_flags(model: str) -> None:
    options, grid = ShapesFlags(batch="2", shape=("tokens=8",)).options_and_grid(model, 1)
    assert (options, grid) == (ModelOptions(batch=2, shapes={"tokens": (8,)}, seed=1), None)
    flags = ShapesFlags(batch="1, 4", shape=("tokens=8,16", "tokens_per=4"), pad=("tokens",))
    options, grid = flags.options_and_grid(model, 0)
    assert options == ModelOptions(shapes={"tokens_per": (4,)})
    assert grid == ShapeGrid(batch=(1, 4), axes={"tokens": (8, 16)}, pad=("tokens",))
    for wrong, said in (
        (ShapesFlags(batch="1,x"), "--batch '1,x'"),
        (ShapesFlags(batch="0"), "--batch '0'"),
        (ShapesFlags(pad=("tokens",)), "there is one shape"),
    ):
        with pytest.raises(UsageError, match=said):
            wrong.options_and_grid(model, 0)

"""What a compiled network says of itself, and the inputs it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from helpers.records.written_artifacts import manifest_content
from tilewright.core.codec import convert
from tilewright.core.errors import InputError, UsageError
from tilewright.deploy.artifact import Artifact
from tilewright.deploy.manifest import MANIFEST as FILE
from tilewright.deploy.manifest import Manifest
from tilewright.deploy.opening import OpenedArtifact
from tilewright.models import ModelOptions

pytestmark = pytest.mark.regression

X = np.ones((2, 3), np.float32)
SOURCE: dict[str, Any] = {
    "model": "/cache/my_net.onnx",
    "batch": None,
    "shapes": {},
    "seed": 0,
    "given": "torch.nn.Module mine.Net",
}
CONTENT = manifest_content(
    model="my net",
    inputs=[
        {"name": "image", "shape": [2, 3], "dtype": "float32"},
        {"name": "mask", "shape": [2], "dtype": "int64", "index_ranges": [[-3, 2]]},
    ],
    outputs=[{"name": "y", "shape": [2, 3], "dtype": "float32"}],
    result={"latency_s": 0.0123},
    source=SOURCE,
)


@pytest.fixture
def network() -> Artifact:
    """An artifact whose kernel doubles the image."""
    manifest = convert(CONTENT, Manifest)
    artifact = object.__new__(Artifact)
    artifact._opened = OpenedArtifact(folder=Path("out"), manifest=manifest)
    artifact.inputs, artifact.outputs = ("image", "mask"), ("y",)
    artifact._inputs, artifact._outputs = manifest.inputs, manifest.outputs
    artifact.threads, artifact.folder = 2, Path("out")
    artifact._call = lambda call: call()  # type: ignore[assignment]
    artifact._network = lambda ordered: [2 * ordered[0]]  # type: ignore[assignment]
    return artifact


MASK = np.zeros(2, np.int64)
WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "twice": ((X, MASK), {"image": X}, "'image' is given twice"),
    "twice, the second missing": ((X,), {"image": X}, "'image' is given twice"),
    "too many": ((X, MASK, X), {}, "3 arrays given for 2 inputs"),
    "missing": ((X,), {}, "'mask' is missing"),
    "unknown and missing": (
        (X,),
        {"masc": MASK},
        "no input is called 'masc', and input 'mask' is missing",
    ),
    "unknown": ((X, MASK), {"imagee": X}, "no input is called 'imagee'"),
    "text": (("x", MASK), {}, "'image' is"),
    "ragged": (([[1.0], [1.0, 2.0]], MASK), {}, "'image' is no array"),
    "none": ((None, MASK), {}, "'image' is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_usage_errors(network: Artifact, name: str) -> None:
    arrays, named, says = WRONG[name]
    with pytest.raises(UsageError, match=says):
        network(*arrays, **named)


def test_in_order_or_by_name(network: Artifact) -> None:
    for answer in (network(X, MASK), network(X, mask=MASK), network(mask=MASK, image=X)):
        np.testing.assert_array_equal(answer, 2 * X)
    with pytest.raises(UsageError, match="dictionary by name"):
        network.run([X, MASK])  # type: ignore[arg-type]


def test_it_shows_what_it_takes_and_where_it_came_from(network: Artifact) -> None:
    html = network._repr_html_()
    for part in (
        "my net",
        "image float32[2, 3], mask int64[2]",
        "y float32[2, 3]",
        "12.3 ms",
        "torch.nn.Module mine.Net",
    ):
        assert part in repr(network) and part in html
    assert "<table>" in html


def test_an_index_outside_its_range_is_refused(network: Artifact) -> None:
    with pytest.raises(InputError, match=r"'mask' is 7 at \[1\].* -3 … 2"):
        network(X, np.array([0, 7]))


def test_the_manifest_says_what_was_handed_over() -> None:
    assert convert(CONTENT, Manifest).source.given == "torch.nn.Module mine.Net"
    older = {**CONTENT, "source": {k: v for k, v in SOURCE.items() if k != "given"}}
    assert convert(older, Manifest).source.given == ""


@pytest.mark.parametrize("options", [ModelOptions(batch=2), ModelOptions(shapes={"image": (1, 3)})])
def test_other_shapes_are_refused_before_anything_is_read(
    tmp_path: Path, options: ModelOptions
) -> None:
    """`profile` and `compare` of an artifact take the shapes that it was compiled for."""
    (tmp_path / FILE).write_text("{}")
    with tw.open(db=tmp_path / "a.db") as session:
        for verb in (session.profile, session.compare):
            with pytest.raises(UsageError, match="compiled for fixed shapes"):
                verb(tmp_path, options=options)

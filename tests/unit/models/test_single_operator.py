"""`op:...` arguments."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from helpers.networks.onnx_models import reference
from tilewright.core.errors import UsageError
from tilewright.graph.evaluate import run_graph
from tilewright.models import LoadedModel, ModelOptions
from tilewright.models.loading import load
from tilewright.models.single_operator import SIGNATURES


def agrees(model: LoadedModel) -> None:
    generator = np.random.default_rng(0)
    feed = {
        name: np.abs(generator.standard_normal(kind.shape)).astype(np.float32) + 0.1
        for name, kind in model.inputs.items()
    }
    wanted = reference(model.onnx_path, feed)["y"]
    np.testing.assert_allclose(
        run_graph(model.graph, feed)["y"], wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max()
    )


def test_the_page_has_the_parameters_of_every_operator() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/reference/models.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| (`.+?`) \| (.*?) ?\|$", page, flags=re.MULTILINE)
    told = {
        name: (re.findall("`(.+?)`", needed), re.findall("`(.+?)`", others))
        for names, needed, others in rows
        for name in re.findall("`(.+?)`", names)
    }
    for name, signature in SIGNATURES.items():
        given = {key: value for key, value in signature.defaults.items() if value is not None}
        needed = [key for key in signature.defaults if key not in given]
        assert told[name] == (needed, [f"{key}={value}" for key, value in given.items()]), name


CASES = {
    "conv2d[n=2,c=8,h=9,w=7,k=3,out=16,pad=1,stride=2,groups=2,bias=1,relu=1]": (2, 16, 5, 4),
    "conv2d[c=8,h=9,kh=1,kw=3,k=1,out=4,padw=1,sh=2,sw=1,dilation=1]": (1, 4, 5, 9),
    "conv2d[c=3,h=12,k=3,out=4,dilation=2]": (1, 4, 8, 8),
    "depthwise[c=6,h=8,k=3,pad=1,multiplier=2]": (1, 12, 8, 8),
    "conv2d_transpose[c=4,h=5,k=4,out=3,pad=1,stride=2,bias=1]": (1, 3, 10, 10),
    "dense[m=3,k=8,n=5,bias=1,relu=1]": (3, 5),
    "dense[k=8,n=5]": (1, 5),
    "batch_matmul[b=3,m=4,k=5,n=6]": (3, 4, 6),
    "batch_matmul[b=3,m=4,k=5,n=6,transpose_b=1]": (3, 4, 6),
    "max_pool2d[c=3,h=8,k=3,stride=2,pad=1]": (1, 3, 4, 4),
    "max_pool2d[c=3,h=8,k=3,stride=2,ceil=1]": (1, 3, 4, 4),
    "avg_pool2d[c=3,h=8,k=3,pad=1,include_pad=1]": (1, 3, 8, 8),
    "softmax[shape=2x3x4]": (2, 3, 4),
    "layer_norm[shape=2x3x4,axis=1]": (2, 3, 4),
    "reduce_mean[shape=1x8x3x3,axes=2x3]": (1, 8, 1, 1),
    "reduce_max[shape=4x6,axes=-1,keep=0]": (4,),
    "add[shape=2x3]": (2, 3),
    "relu[shape=5]": (5,),
    "gelu[shape=2x3]": (2, 3),
    "concat[shape=1x4x2,count=3,axis=1]": (1, 12, 2),
    "transpose[shape=2x3x4,perm=2x0x1]": (4, 2, 3),
}


@pytest.mark.parametrize("text", CASES)
def test_operator_is_built_and_agrees_with_onnx_runtime(text: str) -> None:
    model = load("op:" + text)
    assert model.graph.types["y"].shape == CASES[text]
    anchor = text.partition("[")[0].replace("depthwise", "conv2d")
    assert anchor in {node.operator for node in model.graph.nodes}
    assert "/" not in model.name
    agrees(model)


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_example_loads(name: str) -> None:
    assert load(f"op:{name}[{SIGNATURES[name].example}]").outputs == ("y",)


def test_seed_decides_the_weights() -> None:
    def weight(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        graph = load("op:dense[k=8,n=5]", ModelOptions(seed=seed)).graph
        return next(a for a in graph.constants.values() if a.ndim == 2)

    np.testing.assert_array_equal(weight(1), weight(1))
    assert not np.array_equal(weight(1), weight(2))


def test_batch_applies() -> None:
    model = load("op:conv2d[c=4,h=6,k=3,out=4]", ModelOptions(batch=5))
    assert model.graph.types["y"].shape == (5, 4, 4, 4)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("conv3d[c=1]", "no single operator 'conv3d'", "conv2d"),
        ("conv2d[c=4,h=6,k=3,outt=4]", "no parameter 'outt'", "out"),
        ("conv2d[c=4,h=6]", "needs k, out", "op:conv2d["),
        ("conv2d[c=4,h=six,k=3,out=4]", "no number", "k=3"),
        ("conv2d[c=4,h=6,k=3,out", "does not end", ""),
        ("conv2d[c=4,h=6x6,k=3,out=4]", "one number", ""),
        ("conv2d[c=4,c=4,h=6,k=3,out=4]", "twice", ""),
        ("conv2d[c=4,h=6,k=3,out=4,groups=3]", "do not divide", ""),
        ("conv2d[c=4,h=0,k=3,out=4]", "not possible", ""),
        ("softmax[shape=2x3,axis=4]", "outside", ""),
        ("transpose[shape=2x3,perm=0x0]", "does not fit", ""),
        ("relu\x1b[shape=2]", "no single operator", "relu"),
    ],
)
def test_malformed_arguments(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load("op:" + text)
    assert hint in (caught.value.hint or "")
    assert "\x1b" not in str(caught.value)


def test_kernel_larger_than_the_input_is_refused() -> None:
    with pytest.raises(UsageError):
        load("op:conv2d[c=4,h=2,k=5,out=4]")

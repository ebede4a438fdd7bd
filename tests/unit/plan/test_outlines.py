"""Single operators without their weights: the same tasks, no file."""

from itertools import islice

import pytest

from helpers.fakes.measuring import PLACEMENT
from tilewright.core.errors import InternalError, UsageError
from tilewright.models import ModelOptions
from tilewright.models.configurations import CONFIGURATIONS, drawn
from tilewright.models.loading import load, load_outline
from tilewright.models.single_operator import SIGNATURES
from tilewright.plan.preparation import prepare, prepare_outline

LARGE = [
    "conv2d[c=64,h=9,k=3,out=64,pad=1,bias=1,relu=1]",
    "conv2d[c=64,h=9,k=3,out=64,groups=2]",
    "depthwise[c=256,h=8,k=3,pad=1,multiplier=2,bias=1]",
    "conv2d_transpose[c=32,h=5,k=4,out=48,pad=1,stride=2,bias=1]",
    "dense[m=3,k=64,n=1500,bias=1,relu=1]",
    "layer_norm[shape=4x1133]",
]


@pytest.mark.parametrize("text", [*LARGE, *(f"{n}[{f.example}]" for n, f in SIGNATURES.items())])
def test_every_form_has_the_tasks_of_the_whole_model(text: str):
    options = ModelOptions(seed=3)
    whole, outlined = (p(f"op:{text}", options, PLACEMENT) for p in (prepare, prepare_outline))
    assert outlined.key == whole.key
    assert list(outlined.tasks) == list(whole.tasks)
    assert outlined.model.name == whole.model.name
    assert outlined.plan.arena_bytes == whole.plan.arena_bytes


@pytest.mark.parametrize("family", CONFIGURATIONS)
def test_drawn_configurations_have_the_tasks_of_the_whole_model(family: str):
    for numbers in islice(drawn(family, 7), 4):
        text = CONFIGURATIONS[family].text(numbers)
        whole, outlined = (p(text, ModelOptions(), PLACEMENT) for p in (prepare, prepare_outline))
        assert list(outlined.tasks) == list(whole.tasks), text


def test_an_outline_has_no_file_and_draws_no_large_weight():
    model = load_outline("op:dense[m=1,k=8192,n=4096]")
    assert model.reference is None
    with pytest.raises(InternalError, match="outline"):
        _ = model.onnx_path
    assert model.inputs.keys() == {"x"}
    ((_, weight),) = [(n, a) for n, a in model.graph.constants.items() if a.size > 1024]
    assert len(set(weight[0].tolist())) <= 4096


def test_options_that_change_shapes_and_other_models_are_loaded_whole():
    batch = load_outline("op:dense[m=1,k=64,n=64]", ModelOptions(batch=4))
    assert batch.reference is not None
    assert batch.graph.types["y"].shape == (4, 64)
    assert load_outline("zoo:mlp").reference is not None


@pytest.mark.parametrize(
    "text", ["conv2d[c=3,h=8]", "conv3d", "conv2d[c=3,h=2,out=4,k=5]", "relu["]
)
def test_what_is_not_possible_is_said_as_for_whole_models(text: str):
    said: list[str] = []
    for read in (load, load_outline):
        with pytest.raises(UsageError) as error:
            read(f"op:{text}")
        said.append(error.value.message)
    assert said[0] == said[1]

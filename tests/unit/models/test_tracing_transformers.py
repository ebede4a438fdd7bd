"""How architectures of transformers are made and traced; PyTorch and transformers are stand-ins.

The stand-in of a tensor is an array with the few methods that are called.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.core.errors import TargetError
from tilewright.models.exported import exporter


class Kind:
    """A type of elements."""

    def __init__(self, numpy: Any, *, is_floating_point: bool = False) -> None:
        self.numpy, self.is_floating_point = numpy, is_floating_point


FLOAT, INTEGER, TRUTH = Kind(np.float32, is_floating_point=True), Kind(np.int64), Kind(np.bool_)


class Weight:
    """A parameter or buffer."""

    def __init__(self, *values: float, kind: Kind = FLOAT) -> None:
        self.array, self.kind = np.array(values, kind.numpy), kind
        self.shape = self.array.shape

    def is_floating_point(self) -> bool:
        return self.kind.is_floating_point

    def numel(self) -> int:
        return self.array.size

    def min(self) -> Any:
        return self.array.min()

    def max(self) -> Any:
        return self.array.max()

    def add_(self, amount: Any) -> None:
        self.array = self.array + amount


class Module:
    """As torch.nn.Module."""

    forward: Any

    def __call__(self, **given: Any) -> Any:
        return self.forward(**given)


class Generator:
    def manual_seed(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)


def filled(shape: tuple[int, ...], value: Any, dtype: Kind) -> Any:
    return np.full(shape, value, dtype.numpy)


def drawn(shape: tuple[int, ...], dtype: Kind) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype.numpy)


TORCH = SimpleNamespace(
    float32=FLOAT,
    int64=INTEGER,
    bool=TRUTH,
    randn=drawn,
    full=filled,
    rand=lambda shape, generator: generator.random(shape),
    arange=np.arange,
    no_grad=nullcontext,
    Generator=Generator,
    manual_seed=lambda seed: None,
    nn=SimpleNamespace(Module=Module),
    export=SimpleNamespace(export=lambda module, args, kwargs: (module, kwargs)),
)


class Configuration:
    _attn_implementation = "flash"

    def __init__(self, **fields: int) -> None:
        self.fields = fields


class Model:
    """Returns what it was called with, under the names of results."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration, self.evaluates = configuration, False
        self.bias, self.scale = Weight(0.0, 0.0, 0.0), Weight(1.0, 1.0)
        self.weights, self.temperature = Weight(0.5, -0.25), Weight(1.0)
        self.mask = Weight(1, 1, kind=INTEGER)

    def eval(self) -> Model:
        self.evaluates = True
        return self

    def parameters(self) -> list[Weight]:
        return [self.bias, self.weights, self.temperature]

    def buffers(self) -> list[Weight]:
        return [self.scale, self.mask]

    def __call__(self, **given: Any) -> dict[str, Any]:
        return {"hidden": given, "pooled": sorted(given)}


REQUEST = {
    "kind": "transformer",
    "argument": "bert[layers=1]",
    "configuration": "Configuration",
    "model": "Model",
    "fields": {"layers": 1},
    "seed": 3,
    "inputs": {"input_ids": (2, 8), "pixels": (2, 3)},
    "integers": ["input_ids"],
    "outputs": ["pooled", "hidden"],
    "positions": None,
}


@pytest.fixture(autouse=True)
def transformers(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    library = SimpleNamespace(__version__="4.0", Configuration=Configuration, Model=Model)
    monkeypatch.setitem(sys.modules, "transformers", library)
    return library


def traced(**changed: Any) -> tuple[Any, dict[str, Any]]:
    """The module that is traced, and the inputs that it is traced with."""
    return exporter.traced(TORCH, {**REQUEST, **changed})


@pytest.mark.parametrize("name", ["Configuration", "Model"])
def test_an_architecture_that_transformers_does_not_have(
    name: str, transformers: SimpleNamespace
) -> None:
    """An old version of the library; the message says what is missing in which version."""
    delattr(transformers, name)
    with pytest.raises(TargetError) as caught:
        traced()
    assert caught.value.message == f"'bert[layers=1]': transformers 4.0 has no {name}"
    assert "tilewright[transformers]" in (caught.value.hint or "")


def test_an_architecture_is_made_of_its_fields_and_set_to_inference() -> None:
    network = traced()[0].network
    assert network.configuration.fields == {"layers": 1}
    assert network.configuration._attn_implementation == "eager"
    assert network.evaluates


def test_biases_and_scales_that_are_alike_are_moved_a_little() -> None:
    """Zeros and ones would hide errors and fold away. What differs already, single numbers and
    integers stay; another seed moves otherwise."""
    network = traced()[0].network
    for weight, start in ((network.bias, 0.0), (network.scale, 1.0)):
        moved = weight.array - start
        assert len(set(moved)) == len(moved) and 0 < np.abs(moved).max() <= 0.1
    assert {*np.sign(np.concatenate([network.bias.array, network.scale.array - 1]))} == {-1, 1}
    assert network.weights.array.tolist() == [0.5, -0.25]
    assert network.temperature.array.tolist() == [1.0]
    assert network.mask.array.tolist() == [1, 1]
    again, other = traced()[0].network, traced(seed=4)[0].network
    assert again.bias.array.tolist() == network.bias.array.tolist() != other.bias.array.tolist()


def test_the_inputs_that_it_is_traced_with() -> None:
    """Integers are 0, which is an index of every table; floats are random."""
    _, given = traced()
    assert list(given) == ["input_ids", "pixels"]
    assert given["input_ids"].tolist() == [[0] * 8] * 2 and given["input_ids"].dtype == np.int64
    assert given["pixels"].shape == (2, 3) and given["pixels"].dtype == np.float32
    assert len(set(given["pixels"].ravel())) == 6


def test_tensors_of_every_kind() -> None:
    """Truths are true: a mask that hides nothing."""
    shapes = {"mask": (1, 2), "tokens": (3,), "image": (2,), "count": ()}
    found = exporter.tensors_of(TORCH, shapes, {"mask": TRUTH, "tokens": INTEGER, "count": INTEGER})
    assert list(found) == list(shapes)
    assert found["mask"].tolist() == [[True, True]] and found["mask"].dtype == np.bool_
    assert found["tokens"].tolist() == [0, 0, 0] and found["tokens"].dtype == np.int64
    assert found["image"].dtype == np.float32 and found["image"].all()
    assert found["count"].shape == ()


def test_the_results_are_plain_tensors_in_the_order_asked_for() -> None:
    module, given = traced()
    names, passed = module(**given)
    assert names == ["input_ids", "pixels"] and passed == given


def test_the_positions_of_tokens_are_told_where_they_begin_elsewhere() -> None:
    """RoBERTa counts its tokens from two on."""
    module, given = traced(positions=2)
    names, passed = module(**given)
    assert names == ["input_ids", "pixels", "position_ids"]
    assert passed["position_ids"].tolist() == [[2, 3, 4, 5, 6, 7, 8, 9]]
    assert "position_ids" not in given

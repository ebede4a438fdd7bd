"""A family, and what tasks say of each other, is of one element type."""

from __future__ import annotations

from itertools import combinations

import pytest

from tilewright.core.element_types import element_types
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.predict.collected import family_of, shipped_data

WINDOW = attributes(strides=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1)
DEPTHWISE = tuple((name, 8 if name == "groups" else value) for name, value in WINDOW)
MEAN = attributes(axes=(2, 3), keepdims=True)
WEIGHT, THIN = TensorType((8, 8, 1, 1)), TensorType((8, 1, 1, 1))


def workload(dtype: str, operator: str, named, *rest: TensorType) -> Workload:
    kinds = [TensorType((1, 8, 4, 4), dtype), *(TensorType(k.shape, dtype) for k in rest)]
    step = Step(operator=operator, inputs=tuple(range(len(kinds))), attributes=named)
    return Workload(arguments=tuple(Argument(type=kind) for kind in kinds), steps=(step,))


CASES = {
    "conv2d": ("conv2d", WINDOW, WEIGHT),
    "depthwise": ("conv2d", DEPTHWISE, THIN),
    "reduce_mean": ("reduce_mean", MEAN),
    "elementwise": ("relu", ()),
    "reshape": ("reshape", attributes(shape=(128,))),
}


@pytest.mark.parametrize("name", CASES)
def test_float32_is_the_name_alone_and_no_other_type_has_it(name: str) -> None:
    kinds = [kind.name for kind in element_types()]
    families = {kind: family_of(workload(kind, *CASES[name])) for kind in kinds}
    assert families.pop("float32") == name
    assert families.pop("uint8") == families["int8"]
    for one, other in combinations([name, *families.values()], 2):
        assert one != other


def test_behind_a_conversion_the_anchor_decides() -> None:
    """Bytes that are dequantized first are a convolution of floats."""
    steps = (
        Step(operator="cast", inputs=(0,), attributes=attributes(dtype="float32")),
        Step(operator="conv2d", inputs=(2, 1), attributes=WINDOW),
    )
    kinds = (TensorType((1, 8, 4, 4), "int8"), WEIGHT)
    mixed = Workload(arguments=tuple(Argument(type=kind) for kind in kinds), steps=steps)
    assert mixed.element_type == "float32"
    assert family_of(mixed) == "conv2d"


def test_the_shipped_rows_of_a_family_are_of_one_type() -> None:
    types: dict[str, set[str]] = {}
    for shipped in shipped_data():
        for row in shipped.rows:
            types.setdefault(family_of(row.workload), set()).add(row.workload.element_type)
    assert types["conv2d"] == {"float32"}
    assert all(len(found) == 1 or found == {"int8", "uint8"} for found in types.values())

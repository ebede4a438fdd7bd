"""What workloads say of themselves."""

from __future__ import annotations

import pytest

from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload


def of(step: Step, *kinds: TensorType) -> Workload:
    return Workload(arguments=tuple(Argument(type=kind) for kind in kinds), steps=(step,))


@pytest.mark.parametrize(
    ("dtype", "computed_in"),
    [("float32", "float32"), ("bfloat16", "float32"), ("int8", "int32"), ("int64", "int64")],
)
def test_an_anchor_computes_in_the_type_of_its_data(dtype: str, computed_in: str) -> None:
    step = Step(operator="reduce_max", inputs=(0,), attributes=attributes(axes=(1,), keepdims=True))
    assert of(step, TensorType((2, 8), dtype)).computed_in == computed_in


def test_without_an_anchor_the_result_decides() -> None:
    cast = Step(operator="cast", inputs=(0,), attributes=attributes(dtype="float64"))
    assert of(cast, TensorType((4,), "int8")).computed_in == "float64"
    chosen = Step(operator="where", inputs=(0, 1, 2))
    floats = TensorType((4,), "float16")
    assert of(chosen, TensorType((4,), "bool"), floats, floats).computed_in == "float32"

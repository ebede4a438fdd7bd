"""Kernels between numbers and codes, made of those of one type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.plan.coded_calls import not_rounded, rounded_to_codes, told_in_numbers

SUM = Workload(
    arguments=(Argument(type=TensorType((1, 4), "float32")),) * 2,
    steps=(Step(operator="add", inputs=(0, 1)),),
)


def operators(workload: Workload | None) -> list[str]:
    assert workload is not None
    return [step.operator for step in workload.steps]


def without_division(workload: Workload) -> tuple[Step, ...]:
    """The steps of a sum that is rounded as it is."""
    first, _, *others = workload.steps
    value = len(workload.arguments)
    moved = (replace(step, inputs=(value + place,)) for place, step in enumerate(others))
    return (first, *moved)


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("uint8", 0.0, 255.0), ("int8", -128.0, 127.0)]
)
def test_rounding_ends_at_the_limits_of_its_type(dtype: str, least: float, most: float) -> None:
    made = rounded_to_codes(SUM, dtype)
    assert operators(made) == ["add", "divide", "round", "clip", "cast"]
    assert made.result.dtype == dtype
    assert dict(made.steps[-2].attributes) == {"minimum": least, "maximum": most}
    assert operators(told_in_numbers(made)) == ["add", "divide", "round", "clip", "multiply"]
    assert told_in_numbers(SUM) is SUM


def test_what_rounds_is_left_out_with_its_zero_point() -> None:
    made = rounded_to_codes(SUM, "uint8")
    left = not_rounded(made)
    assert operators(left) == ["add"] and left is not None and left.result.dtype == "float32"
    *before, clip, cast = made.steps
    results = len(made.arguments) + len(before)
    shifted = (
        *before,
        Step(operator="add", inputs=(results - 1, 2)),
        Step(operator="clip", attributes=clip.attributes, inputs=(results,)),
        Step(operator="cast", attributes=cast.attributes, inputs=(results + 1,)),
    )
    assert not_rounded(Workload(arguments=made.arguments, steps=shifted)) == left


def test_a_sum_that_is_multiplied_instead_of_divided_has_a_form_that_does_not_round() -> None:
    made = rounded_to_codes(SUM, "uint8")
    scaled = replace(made, steps=without_division(made))
    assert operators(scaled) == ["add", "round", "clip", "cast"]
    assert operators(not_rounded(scaled)) == ["add"]
    product = replace(scaled.steps[0], operator="multiply")
    assert not_rounded(replace(scaled, steps=(product, *scaled.steps[1:]))) is None


def test_only_what_rounds_behind_something_has_a_form_that_does_not() -> None:
    assert not_rounded(SUM) is None
    alone = Workload(arguments=SUM.arguments[:1], steps=())
    assert not_rounded(rounded_to_codes(alone, "uint8")) is None

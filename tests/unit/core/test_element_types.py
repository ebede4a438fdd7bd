"""The registry of element types."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.element_types import (
    element_type,
    element_types,
    is_element_type,
)
from tilewright.core.errors import InternalError


@pytest.mark.parametrize("kind", element_types(), ids=lambda kind: kind.name)
def test_a_type_is_what_numpy_says(kind) -> None:
    assert element_type(kind.name) is kind and is_element_type(kind.name)
    assert kind.numpy.name == kind.name and kind.numpy.itemsize == kind.bytes
    assert kind.is_float == (kind.unit_roundoff is not None)
    assert kind.is_integer == np.issubdtype(kind.numpy, np.integer)
    assert element_type(kind.accumulator).bytes >= kind.bytes
    assert kind.is_half == (kind.is_float and kind.bytes == 2)


@pytest.mark.parametrize("kind", element_types(), ids=lambda kind: kind.name)
def test_kernels_compute_in_a_type_that_loses_nothing(kind) -> None:
    wide = element_type(kind.computed_in)
    assert wide.computed_in == wide.name
    assert wide.bytes >= max(4, kind.bytes) and wide.is_float == kind.is_float
    assert np.can_cast(kind.numpy, wide.numpy) or kind.is_half
    if kind.is_float:
        assert kind.computed_in == kind.accumulator
    if kind.bytes >= 4:
        assert kind.computed_in == kind.name


def test_types_that_are_narrow_are_widened() -> None:
    found = {kind.name: kind.computed_in for kind in element_types() if kind.bytes < 4}
    assert found == {
        **dict.fromkeys(("float16", "bfloat16"), "float32"),
        **dict.fromkeys(("int8", "uint8", "int16", "uint16", "bool"), "int32"),
    }


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_unit_roundoff_is_half_the_distance_of_numbers_above_one(name: str) -> None:
    kind = element_type(name)
    assert kind.unit_roundoff is not None
    one, half = np.array(1, kind.numpy), np.array(1 + kind.unit_roundoff).astype(kind.numpy)
    above = np.array(1 + 2 * kind.unit_roundoff).astype(kind.numpy)
    assert one == half, "a tie goes to the even neighbour"
    assert above > one and float(above) - 1 == 2 * kind.unit_roundoff


def test_unknown_names_are_told() -> None:
    with pytest.raises(InternalError, match="unknown element type 'float8'; known are float64"):
        element_type("float8")
    assert not is_element_type("float8")

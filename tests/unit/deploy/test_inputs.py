"""Indices at the border of a network."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.errors import InputError
from tilewright.deploy.manifest import Port
from tilewright.deploy.network_calls import require_valid_indices
from tilewright.graph.inputs import IndexRange

pytestmark = pytest.mark.regression

ROWS = (IndexRange.of_axis(100),)
PLACES = (IndexRange.of_axis(4), IndexRange(lowest=0, highest=5))


def port(ranges: Any) -> Port:
    entry = {"name": "ids", "shape": [3, 2], "dtype": "int64", "index_ranges": ranges}
    return msgspec.convert(entry, Port)


def test_what_is_written_is_read() -> None:
    assert Port(name="ids", shape=(3, 2), dtype="int64").ranges == ()
    assert port([[-100, 99]]).ranges == ROWS
    assert port([[-4, 3], [0, 5]]).ranges == PLACES


@pytest.mark.parametrize("found", [3, None, [1, 2], [[1]], [["a", "b"]], [[0, 1]] * 3])
def test_what_nobody_wrote(found: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        port(found)


def test_the_value_its_place_and_the_range_are_named() -> None:
    array = np.zeros((2, 3), np.int64)
    array[1, 2] = 5000
    with pytest.raises(InputError, match=r"'ids' is 5000 at \[1, 2\].* -100 … 99") as caught:
        require_valid_indices("ids", array, ROWS)
    assert caught.value.exit_code == 4
    with pytest.raises(InputError, match=r"is -1 at \[1, 1\].* 0 … 5"):
        require_valid_indices("ids", np.array([[3, 5], [-4, -1]]), PLACES)


@given(st.lists(st.integers(-200, 200), max_size=8), st.sampled_from(["int64", "int16"]))
def test_as_numpy_judges(values: list[int], dtype: str) -> None:
    array = np.array(values, dtype)
    try:
        np.take(np.zeros(100), array)
    except IndexError:
        with pytest.raises(InputError):
            require_valid_indices("ids", array, ROWS)
    else:
        require_valid_indices("ids", array, ROWS)

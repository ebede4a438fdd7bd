"""What inputs of nodes without kernels of ours hold indices, and which values these may have.

Random inputs are drawn from these ranges; an index beyond its table is a crash of the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from helpers.networks.onnx_models import unfolded
from tilewright.core.errors import ModelError
from tilewright.graph.inputs import IndexRange, input_ranges
from tilewright.graph.network import Graph

Shape = tuple[int, ...]


def floats(*shape: int) -> tuple[str, Shape]:
    return "float32", shape


def indices(*shape: int, kind: str = "int64") -> tuple[str, Shape]:
    return kind, shape


def node_of(
    operator: str,
    inputs: Mapping[str, Any],
    *results: Shape,
    order: Sequence[str] = (),
    domain: str = "",
    **named: Any,
) -> Graph:
    """Our graph of one node; inputs are arrays, which are constants, or types and shapes."""

    def value(name: str, kind: str, shape: Shape) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape
        )

    outputs = [f"y{number}" for number in range(len(results))]
    node = helper.make_node(
        operator, list(order or inputs), outputs, name="look", domain=domain, **named
    )
    constants = {n: given for n, given in inputs.items() if isinstance(given, np.ndarray)}
    graph = helper.make_graph(
        [node],
        "test",
        [value(name, *given) for name, given in inputs.items() if name not in constants],
        [value(name, "float32", shape) for name, shape in zip(outputs, results, strict=True)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return unfolded(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def counted(extent: int) -> IndexRange:
    """From zero on."""
    return IndexRange(lowest=0, highest=extent - 1)


def from_the_end(*extents: int) -> tuple[IndexRange, ...]:
    """Negative ones count from the end."""
    return tuple(IndexRange(lowest=-extent, highest=extent - 1) for extent in extents)


def test_one_index_for_each_element() -> None:
    for axis, extent in ((0, 4), (1, 6), (-1, 6)):
        graph = node_of(
            "GatherElements", {"x": floats(4, 6), "i": indices(2, 3)}, (2, 3), axis=axis
        )
        assert input_ranges(graph) == {"i": from_the_end(extent)}
    graph = node_of(
        "ScatterElements", {"x": floats(4, 6), "i": indices(2, 3), "u": floats(2, 3)}, (4, 6)
    )
    assert input_ranges(graph) == {"i": from_the_end(4)}, "along the first axis if none is named"


@pytest.mark.parametrize(
    ("shape", "at", "batch", "result", "extents"),
    [
        ((4, 6), (5, 2), 0, (5,), (4, 6)),
        ((4, 6), (5, 1), 0, (5, 6), (4,)),
        ((2, 4, 6), (2, 5, 1), 1, (2, 5, 6), (4,)),
        ((2, 4, 6), (2, 5, 2), 1, (2, 5), (4, 6)),
    ],
)
def test_positions_have_a_number_for_each_axis_behind_the_batch(
    shape: Shape, at: Shape, batch: int, result: Shape, extents: Shape
) -> None:
    inputs = {"x": floats(*shape), "i": indices(*at)}
    graph = node_of("GatherND", inputs, result, batch_dims=batch)
    assert input_ranges(graph) == {"i": from_the_end(*extents)}


def test_a_position_of_no_numbers_is_refused() -> None:
    """Positions of more numbers than there are axes are refused by ONNX's own inference."""
    with pytest.raises(ModelError, match="indices of 0 numbers"):
        node_of("GatherND", {"x": floats(4, 6), "i": indices(5, 0)}, (5, 4, 6))


def test_where_updates_are_put() -> None:
    inputs = {"x": floats(4, 6), "i": indices(3, 2), "u": floats(3)}
    assert input_ranges(node_of("ScatterND", inputs, (4, 6))) == {"i": from_the_end(4, 6)}


def test_images_of_a_batch_and_places_of_a_result_are_counted_from_zero() -> None:
    rois = {"x": floats(3, 2, 8, 8), "r": floats(5, 4), "b": indices(5)}
    graph = node_of("RoiAlign", rois, (5, 2, 2, 2), output_height=2, output_width=2)
    assert input_ranges(graph) == {"b": (counted(3),)}
    pooled = {"x": floats(1, 1, 2, 2), "i": indices(1, 1, 2, 2)}
    graph = node_of("MaxUnpool", pooled, (1, 1, 4, 4), kernel_shape=[2, 2], strides=[2, 2])
    assert input_ranges(graph) == {"i": (counted(16),)}


def embedded(order: Sequence[str]) -> dict[str, tuple[IndexRange, ...]]:
    inputs = {
        "words": indices(1, 8, kind="int32"),
        "segments": indices(1, 8, kind="int32"),
        "of words": floats(50, 4),
        "of positions": floats(16, 4),
        "of segments": floats(2, 4),
        "gamma": floats(4),
        "beta": floats(4),
        "positions": indices(1, 8, kind="int32"),
    }
    graph = node_of(
        "EmbedLayerNormalization",
        {name: given for name, given in inputs.items() if name in order},
        (1, 8, 4),
        order=order,
        domain="com.microsoft",
    )
    return dict(input_ranges(graph))


def test_words_segments_and_positions_have_a_table_each() -> None:
    weights = ["gamma", "beta"]
    tables = ["of words", "of positions", "of segments"]
    every = ["words", "segments", *tables, *weights, "", "positions"]
    assert embedded(every) == {
        "words": (counted(50),),
        "segments": (counted(2),),
        "positions": (counted(16),),
    }
    bare = ["words", "", "of words", "of positions", "", *weights]
    assert embedded(bare) == {"words": (counted(50),)}, "DistilBERT has no segments"


@pytest.mark.parametrize("index", [[[4, 0]], [[0, -7]]])
def test_a_known_position_beyond_its_table_is_refused(index: list[list[int]]) -> None:
    inputs = {"x": floats(4, 6), "i": np.array(index, np.int64)}
    with pytest.raises(ModelError, match=r"'look' \('GatherND'\)"):
        node_of("GatherND", inputs, (1,))
    inside = {"x": floats(4, 6), "i": np.array([[3, -6]], np.int64)}
    assert input_ranges(node_of("GatherND", inside, (1,))) == {}


def test_an_operator_of_another_domain_is_not_taken_for_its_namesake() -> None:
    inputs = {"x": floats(4, 6), "i": indices(2, 3)}
    graph = node_of("GatherElements", inputs, (2, 3), domain="somebody.else")
    assert input_ranges(graph) == {}

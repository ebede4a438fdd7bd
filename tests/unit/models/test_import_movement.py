"""Shapes, slices, padding, resizing and constants against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from helpers.networks.onnx_models import check, check_node, few, int64, model_of, normal, unfolded
from tilewright.core.errors import ModelError
from tilewright.graph.evaluate import run_graph
from tilewright.graph.network import Graph


@pytest.mark.parametrize("wanted", [(6, 4), (0, -1), (-1,), (2, 0, 2, 2), (1, 24)])
@pytest.mark.parametrize("opset", [9, 14])
def test_reshape(wanted: tuple[int, ...], opset: int) -> None:
    check_node("Reshape", {"x": normal(2, 3, 4)}, constants={"s": int64(*wanted)}, opset=opset)


def test_how_many_elements_there_are() -> None:
    check_node("Size", {"x": normal(2, 3, 4)})


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_ones_along_a_diagonal(k: int) -> None:
    check_node("EyeLike", {"x": normal(3, 5)}, k=k)
    check_node("EyeLike", {"x": normal(3, 5)})
    check_node("EyeLike", {"x": normal(3, 5)}, k=k, dtype=TensorProto.INT64)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten(axis: int) -> None:
    check_node("Flatten", {"x": normal(2, 3, 4)}, opset=11, axis=axis)


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize(("operator", "axes"), [("Squeeze", (0, 2)), ("Squeeze", None),
                                                ("Unsqueeze", (0, 3))])  # fmt: skip
def test_squeeze(operator: str, axes: tuple[int, ...] | None, opset: int) -> None:
    named: dict[str, Any] = {"axes": axes} if axes and opset < 13 else {}
    constants = {"a": int64(*axes)} if axes and opset >= 13 else {}
    check_node(operator, {"x": normal(1, 3, 1, 4)}, constants=constants, opset=opset, **named)


@pytest.mark.parametrize("order", [None, (0, 2, 1), (2, 0, 1), (0, 1, 2)])
def test_transpose(order: tuple[int, ...] | None) -> None:
    check_node("Transpose", {"x": normal(2, 3, 4)}, **({"perm": order} if order else {}))


@pytest.mark.parametrize("wanted", [(2, 3, 4), (3, 1), (5, 2, 3, 4), (1,)])
def test_expand(wanted: tuple[int, ...]) -> None:
    check_node("Expand", {"x": normal(2, 3, 1)}, constants={"s": int64(*wanted)})


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 1, 4), (2, 2, 2)])
def test_tile(repeats: tuple[int, ...]) -> None:
    check_node("Tile", {"x": normal(2, 3, 1)}, constants={"r": int64(*repeats)})


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    check_node("DepthToSpace", {"x": normal(1, 8, 2, 3)}, opset=11, blocksize=2, mode=mode)


def test_space_to_depth() -> None:
    check_node("SpaceToDepth", {"x": normal(1, 3, 4, 6)}, blocksize=2)


def test_space_to_depth_undoes_depth_to_space_in_either_order() -> None:
    newest = onnx.defs.onnx_opset_version()
    if "mode" not in onnx.defs.get_schema("SpaceToDepth", newest).attributes:
        pytest.skip("this version of ONNX knows one order only")
    x = normal(1, 8, 2, 3)
    for mode in ("DCR", "CRD"):
        nodes = [
            helper.make_node("DepthToSpace", ["x"], ["wide"], blocksize=2, mode=mode),
            helper.make_node("SpaceToDepth", ["wide"], ["y"], blocksize=2, mode=mode),
        ]
        graph = unfolded(model_of(nodes, {"x": x}, opset=newest))
        np.testing.assert_array_equal(run_graph(graph, {"x": x})["y"], x)


edges = st.integers(-9, 9) | st.sampled_from([2**62, -(2**62)])


@few
@given(st.lists(st.sampled_from([-3, -2, -1, 0, 1, 2]), min_size=1, max_size=3), st.data())
def test_slice(axes: list[int], data: st.DataObject) -> None:
    shape = (5, 6, 7)
    axes = list({axis % 3: axis for axis in axes}.values())
    starts = [data.draw(edges) for _ in axes]
    stops = [data.draw(edges) for _ in axes]
    steps = [data.draw(st.sampled_from([1, 2, -1, -3])) for _ in axes]
    ranges = [
        range(*slice(*part).indices(shape[axis % 3]))
        for axis, *part in zip(axes, starts, stops, steps, strict=True)
    ]
    if any(len(entries) == 0 for entries in ranges):
        return
    names = ("starts", "stops", "axes", "steps")
    constants = dict(
        zip(names, map(lambda v: int64(*v), (starts, stops, axes, steps)), strict=True)
    )
    check_node("Slice", {"x": normal(*shape)}, constants=constants, opset=13)


def test_slice_with_attributes() -> None:
    check_node("Slice", {"x": normal(5, 6)}, opset=9, starts=[1, -3], ends=[100, -1], axes=[0, 1])
    check_node("Slice", {"x": normal(5, 6)}, opset=9, starts=[2], ends=[4])


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("sizes", [(2, 4), None])
def test_split(opset: int, sizes: tuple[int, ...] | None) -> None:
    named: dict[str, Any] = {"split": sizes} if sizes and opset < 13 else {}
    if opset >= 18 and not sizes:
        named["num_outputs"] = 2
    constants = {"s": int64(*sizes)} if sizes and opset >= 13 else {}
    check_node(
        "Split", {"x": normal(3, 6)}, constants=constants, opset=opset, outputs=("y", "z"),
        axis=-1, **named,
    )  # fmt: skip


def test_split_that_does_not_divide() -> None:
    check_node(
        "Split", {"x": normal(7, 2)}, opset=18, outputs=("a", "b", "c"), axis=0, num_outputs=3
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    check_node("Concat", {f"x{i}": normal(2, 3, 4, seed=i) for i in range(3)}, axis=axis)


@pytest.mark.parametrize("indices", [np.asarray(1), np.asarray(-1), int64(2, 0), int64(1),
                                     int64(0, -1, 2, 1).reshape(2, 2)])  # fmt: skip
@pytest.mark.parametrize("axis", [0, -1])
def test_gather(indices: np.ndarray[Any, Any], axis: int) -> None:
    check_node("Gather", {"x": normal(3, 4, 5)}, constants={"i": indices}, axis=axis)


def test_embedding_lookup() -> None:
    indices = np.asarray([[1, 5, 0]], np.int64)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="lookup")]
    model = model_of(nodes, {"ids": indices}, constants={"table": normal(10, 4)})
    assert check(model, {"ids": indices}).nodes[0].operator == "gather"


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("opset", [9, 11, 18])
def test_pad(mode: str, opset: int) -> None:
    amounts = (0, 1, 2, 1, 0, 2)
    if opset < 11:
        check_node(
            "Pad", {"x": normal(3, 4, 5)}, opset=opset, pads=amounts, mode=mode,
            **({"value": 1.5} if mode == "constant" else {}),
        )  # fmt: skip
    else:
        constants = {"p": int64(*amounts), "v": np.asarray(1.5, np.float32)}
        check_node("Pad", {"x": normal(3, 4, 5)}, constants=constants, opset=opset, mode=mode)


def test_pad_by_what_comes_from_the_other_end() -> None:
    for amounts in ((0, 2, 1, 1, 0, 2), (0, -1, 1, 1, 0, 2)):
        check_node(
            "Pad", {"x": normal(3, 5, 4)}, constants={"p": int64(*amounts)}, opset=19, mode="wrap"
        )


def test_pad_of_some_axes_and_negative() -> None:
    constants = {"p": int64(1, 2), "v": np.asarray(0, np.float32), "a": int64(-1)}
    check_node("Pad", {"x": normal(3, 4)}, constants=constants, opset=18)
    check_node("Pad", {"x": normal(4, 5)}, constants={"p": int64(-1, 2, 0, -2)}, opset=13)


MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def test_a_slice_whose_steps_are_not_known_is_carried_along() -> None:
    constants = {"from": int64(0), "to": int64(6), "axes": int64(0)}
    inputs = {"x": normal(6, 2), "steps": int64(2)}
    node = helper.make_node("Slice", ["x", *constants, "steps"], ["y"], name="node")
    model = model_of([node], inputs, opset=13, constants=constants)
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (3, 2))
    )
    assert [each.operator for each in unfolded(model).nodes] == ["opaque"]


@pytest.mark.parametrize("coordinate", MODES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("form", ["scales", "sizes"])
def test_resize(coordinate: str, rounding: str, form: str) -> None:
    constants = {"r": np.zeros(0, np.float32)}
    if form == "scales":
        constants["scales"] = np.asarray([1, 1, 2, 0.6], np.float32)
        order = ["x", "r", "scales"]
    else:
        constants["sizes"] = int64(1, 2, 9, 3)
        order = ["x", "r", "", "sizes"]
    check_node(
        "Resize", {"x": normal(1, 2, 4, 5)}, constants=constants, order=order, opset=13,
        mode="nearest", coordinate_transformation_mode=coordinate, nearest_mode=rounding,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_upsample(operator: str, opset: int, mode: str) -> None:
    scales = {"s": np.asarray([1, 1, 2, 3], np.float32)}
    check_node(operator, {"x": normal(1, 2, 3, 3)}, constants=scales, opset=opset, mode=mode)


def resized(x: Any, *, roi: Any = (), scales: Any = (), sizes: Any = (), **named: Any) -> Graph:
    """`check` of a Resize."""
    constants = {"roi": np.asarray(roi, np.float32), "scales": np.asarray(scales, np.float32)}
    order = ["x", "roi", "scales"]
    if len(sizes):
        constants, order = (
            {"roi": constants["roi"], "sizes": int64(*sizes)},
            ["x", "roi", "", "sizes"],
        )
    return check_node("Resize", {"x": x}, constants=constants, order=order, opset=18, **named)


INTERPOLATIONS = [
    {"mode": "linear"},
    {"mode": "linear", "antialias": 1},
    {"mode": "linear", "antialias": 1, "exclude_outside": 1},
    {"mode": "cubic", "cubic_coeff_a": -0.5},
    {"mode": "cubic", "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1},
]


@pytest.mark.parametrize("named", INTERPOLATIONS)
@pytest.mark.parametrize(
    "coordinate",
    ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners"],
)
def test_interpolation(coordinate: str, named: dict[str, Any]) -> None:
    x = normal(1, 2, 6, 8)
    named = {**named, "coordinate_transformation_mode": coordinate}
    for sizes in ((1, 2, 9, 17), (1, 2, 4, 3), (1, 2, 2, 12)):
        graph = resized(x, sizes=sizes, **named)
        assert {node.operator for node in graph.nodes} == {"interpolate"}
    resized(x, scales=(1, 1, 2, 3), **named)
    if coordinate != "align_corners":
        resized(x, scales=(1, 1, 0.6, 2.3), **named)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_part_of_a_tensor_is_resized_and_its_surroundings_made_up(mode: str) -> None:
    named = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    region = (0, 0, 0.2, 0.4, 1, 1, 0.7, 1.2)
    resized(normal(1, 2, 6, 8), roi=region, sizes=(1, 2, 9, 13), mode=mode, **named)
    resized(normal(1, 2, 6, 8), roi=region, sizes=(1, 2, 1, 2), mode=mode, **named)


@pytest.mark.parametrize(
    ("part", "nodes"), [((0.25, 0.75), 1), ((1.0, 0.0), 1), ((0.0, 1.0), 0), ((0.2, 1.2), 2)]
)
def test_a_part_that_keeps_its_extent_is_still_resized(
    part: tuple[float, float], nodes: int
) -> None:
    """As the specification says: rows at 5 · (first + (last - first) · n / 5); the middle half is
    stretched, (1, 0) runs backwards, beyond the last row there is a made-up value, and of the whole
    nothing is to be done. ONNX Runtime leaves axes alone whose extent stays."""
    x, (first, last) = normal(1, 2, 6, 8), part
    region = np.asarray([0, 0, first, 0, 1, 1, last, 1], np.float32)
    node = helper.make_node(
        "Resize", ["x", "r", "", "s"], ["y"], mode="linear", extrapolation_value=7.0,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    constants = {"r": region, "s": int64(1, 2, 6, 8)}
    graph = unfolded(model_of([node], {"x": x}, opset=18, constants=constants))
    rows = np.linspace(5 * first, 5 * last, 6)
    wanted = np.apply_along_axis(lambda column: np.interp(rows, range(6), column), 2, x)
    wanted[:, :, rows > 5.0] = 7.0
    (found,) = run_graph(graph, {"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert len([each for each in graph.nodes if each.operator != "identity"]) == nodes


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resizing_some_axes_by_one_factor(policy: str) -> None:
    for mode in ("nearest", "linear"):
        resized(
            normal(1, 6, 4, 2), sizes=(9, 9), axes=[1, 2], keep_aspect_ratio_policy=policy,
            mode=mode,
        )  # fmt: skip


def test_long_sums_are_a_product_with_a_matrix() -> None:
    graph = resized(normal(1, 2, 120, 3), sizes=(1, 2, 5, 3), mode="cubic", antialias=1)
    assert "dense" in {node.operator for node in graph.nodes}


def test_interpolation_in_half_precision() -> None:
    check_node(
        "Resize", {"x": normal(1, 1, 3, 3).astype(np.float16)}, order=["x", "", "s"], opset=18,
        constants={"s": np.asarray([1, 1, 2, 2], np.float32)}, mode="linear",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "x", "named"),
    [
        (
            "no whole number",
            normal(1, 1, 3, 3),
            {"coordinate_transformation_mode": "align_corners"},
        ),
        ("elements of type uint8", np.ones((1, 1, 3, 3), np.uint8), {}),
        ("mode 'sideways'", normal(1, 1, 3, 3), {"mode": "sideways"}),
    ],
)
def test_resizing_that_means_nothing_certain_is_refused(
    said: str, x: Any, named: dict[str, Any]
) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], name="grow", **{"mode": "linear", **named}
    )
    scales = {"s": np.asarray([1, 1, 1.5, 2], np.float32)}
    with pytest.raises(ModelError, match=rf"'grow' \('Resize'\).*{said}"):
        unfolded(model_of([node], {"x": x}, opset=18, constants=scales))


def test_scales_that_come_in_as_an_input_are_refused() -> None:
    """The shape of the result does not tell them: two times two is four, and 2.4 times two, too."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="grow", mode="linear")
    inputs = {"x": normal(1, 1, 3, 3), "s": np.asarray([1, 1, 2, 2], np.float32)}
    with pytest.raises(ModelError, match="neither its scales nor its sizes are constant"):
        unfolded(model_of([node], inputs, opset=18))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_triangle(upper: int, offset: int) -> None:
    constants = {"k": np.asarray(offset, np.int64)}
    check_node("Trilu", {"x": normal(2, 4, 5)}, constants=constants, opset=14, upper=upper)


def test_shape_arithmetic_is_folded() -> None:
    """Reshape to a shape computed by Shape, Gather, Concat, Range and ConstantOfShape."""
    x = normal(2, 3, 4)
    filling = numpy_helper.from_array(np.asarray([1.5], np.float32))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["n"], name="pick"),
        helper.make_node("Unsqueeze", ["n"], ["n1"], name="lift", axes=[0]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], name="join", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"], name="flatten"),
        helper.make_node("ConstantOfShape", ["target2"], ["ones"], name="fill", value=filling),
        helper.make_node("Range", ["zero", "limit", "one"], ["ramp"], name="ramp"),
        helper.make_node("Cast", ["ramp"], ["ramp_f"], name="cast", to=1),
        helper.make_node("Add", ["flat", "ones"], ["sum"], name="add"),
        helper.make_node("Mul", ["sum", "ramp_f"], ["y"], name="mul"),
    ]
    constants = {
        "zero": np.asarray(0, np.int64), "rest": int64(-1), "target2": int64(2, 12),
        "limit": np.asarray(12, np.int64), "one": np.asarray(1, np.int64),
    }  # fmt: skip
    graph = check(model_of(nodes, {"x": x}, opset=11, constants=constants), {"x": x})
    assert [node.operator for node in graph.nodes] == ["reshape", "add", "multiply"]


def test_integer_constants_keep_their_type() -> None:
    x = int64(4, 5)
    graph = check_node("Add", {"x": x}, constants={"k": int64(1, 2)})
    assert graph.types["k"].dtype == "int64"


@pytest.mark.parametrize(
    ("named", "wanted"),
    [({"value_float": 2.5}, np.float32), ({"value_ints": [1, 2]}, np.int64),
     ({"value_floats": [1.0, 2.0]}, np.float32), ({"value_int": 3}, np.int64)],
)  # fmt: skip
def test_constant_forms(named: dict[str, Any], wanted: type[Any]) -> None:
    x = np.asarray([1, 2], wanted)
    nodes = [
        helper.make_node("Constant", [], ["k"], name="known", **named),
        helper.make_node("Add", ["x", "k"], ["y"], name="add"),
    ]
    check(model_of(nodes, {"x": x}, opset=13), {"x": x})

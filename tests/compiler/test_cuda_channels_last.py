"""Kernels for GPUs with the channels of images innermost (NHWC), executed in three orders."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels.cuda_images import (
    check_image_kernel,
    image_convolution,
    image_program,
    image_settings,
    image_transposed,
    network_task,
    offered,
)
from helpers.kernels.one_kernel import step
from tilewright.core.forms import CHANNELS_LAST
from tilewright.graph.workload import Workload
from tilewright.testing.cuda_execution import compiler

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="no C++ compiler executes CUDA text here"
)
CONVOLUTIONS = {
    "one channel": image_convolution((2, 1, 13, 11), 5, padding=(1,) * 4),
    "three channels": image_convolution(
        (1, 3, 17, 19), 24, (7, 7), strides=(2, 2), padding=(3,) * 4
    ),
    "four channels": image_convolution((1, 4, 9, 10), 33, dilation=(2, 1), padding=(2, 0, 1, 3)),
    "pointwise": image_convolution((2, 24, 6, 6), 20, (1, 1)),
    "pointwise with stride": image_convolution((1, 24, 7, 7), 9, (1, 1), strides=(2, 2)),
    "groups": image_convolution((1, 16, 7, 7), 16, padding=(1,) * 4, groups=2),
    "odd groups": image_convolution(
        (2, 6, 9, 7), 10, strides=(2, 1), padding=(1, 0, 2, 1), groups=2
    ),
    "filters that are computed": image_convolution(
        (1, 24, 7, 7), 16, padding=(1,) * 4, packed=False
    ),
    "transposed": image_transposed(
        (2, 6, 5, 4), 10, (4, 3), strides=(2, 2), padding=(1, 0, 0, 1), groups=2,
        output_padding=(1, 0),
    ),
    "transposed with missing taps": image_transposed((1, 5, 4, 6), 7, (2, 2), strides=(3, 2)),
    "transposed in vectors": image_transposed(
        (1, 8, 6, 6), 12, (3, 3), dilation=(1, 2), padding=(1,) * 4
    ),
    "transposed, filters that are computed": image_transposed(
        (1, 12, 5, 7), 8, (3, 4), strides=(2, 1), groups=2, packed=False
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kernel", "bound"),
    [
        *((name, "cuda_product", "generic") for name in CONVOLUTIONS),
        ("transposed in vectors", "cuda_product_tf32", "cuda_product_tf32"),
    ],
)
def test_images_in_any_form(name: str, kernel: str, bound: str) -> None:
    """Read and written in either form, in settings from the best to the worst."""
    task = CONVOLUTIONS[name]
    ports = offered(kernel, task)
    assert any(CHANNELS_LAST in forms for forms in ports)
    for number, forms in enumerate(each for each in ports if CHANNELS_LAST in each):
        found = image_settings(kernel, task, forms)
        check_image_kernel(kernel, task, forms, found[(17 * number) % len(found)], bound)


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from((1, 3, 4, 24)),
    st.integers(1, 12),
    st.tuples(st.integers(5, 13), st.integers(5, 13)),
    st.tuples(st.integers(1, 2), st.integers(0, 2)),
    st.integers(0, 59),
)
def test_odd_images(
    channels: int, out: int, plane: tuple[int, int], how: tuple[int, int], number: int
) -> None:
    stride, pad = how
    task = image_convolution(
        (1, channels, *plane), out, strides=(stride,) * 2, padding=(pad, 0, pad, pad)
    )
    ports = offered("cuda_product", task)
    forms = ports[number % len(ports)]
    found = image_settings("cuda_product", task, forms)
    check_image_kernel("cuda_product", task, forms, found[number % len(found)])


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from((1, 3, 4, 12)),
    st.integers(1, 9),
    st.tuples(st.integers(3, 7), st.integers(3, 7)),
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1)),
    st.integers(0, 59),
)
def test_odd_transposed_images(
    channels: int, out: int, plane: tuple[int, int], how: tuple[int, int, int], number: int
) -> None:
    kernel, stride, pad = how
    task = image_transposed(
        (1, channels, *plane), out, (kernel, 3), strides=(stride, 2), padding=(0, pad, 0, 1)
    )
    ports = offered("cuda_product", task)
    forms = ports[number % len(ports)]
    found = image_settings("cuda_product", task, forms)
    check_image_kernel("cuda_product", task, forms, found[number % len(found)])


@pytest.mark.parametrize("by_taps", [False, True])
@pytest.mark.parametrize("of", [image_convolution, image_transposed])
def test_a_pixel_is_compared_once(of: Callable[..., Workload], by_taps: bool) -> None:
    """What is behind a comparison with the borders of an image is four channels, read at once."""
    task = of((1, 24, 5, 6), 8, padding=(1,) * 4)
    forms = next(ports for ports in offered("cuda_product", task) if ports[0] == CHANNELS_LAST)
    tiles = dict(
        tile_rows=32, tile_columns=16, thread_rows=4, thread_columns=4, tile_depth=8, stages=1,
        split=1, by_taps=by_taps,
    )  # fmt: skip
    text = image_program("cuda_product", task, forms, tiles).source
    reads = [line for line in text.splitlines() if "argument0_ptr +" in line]
    assert reads and all("*(float4*)(argument0_ptr" in line for line in reads)
    check_image_kernel("cuda_product", task, forms, tiles)


IMAGE = (2, 6, 5, 7)
MOVED = {
    "a conversion": network_task([(1, 40, 6, 7)], (), step("identity", 0)),
    "a sum": network_task([IMAGE, IMAGE], (), step("add", 0, 1), step("relu", 2)),
    "in vectors": network_task([(1, 64, 8, 16)], (), step("relu", 0)),
    "a gate and a bias": network_task(
        [IMAGE, (2, 6, 1, 1), (6, 1, 1)],
        (2,),
        *(step("multiply", 0, 1), step("add", 3, 2), step("tanh", 4)),
    ),
    "joined": network_task([IMAGE, (2, 4, 5, 7)], (), step("concat", 0, 1, axis=1)),
    "turned and flat": network_task(
        [IMAGE],
        (),
        step("transpose", 0, permutation=(0, 2, 3, 1)),
        step("reshape", 1, shape=(2, 35, 6)),
    ),
    "padded": network_task(
        [IMAGE],
        (),
        step("pad", 0, before=(0, 0, 1, 1), after=(0, 0, 2, 1), mode="constant", value=0.0),
    ),
    "across channels": network_task(
        [IMAGE], (), step("lrn", 0, size=3, alpha=1e-4, beta=0.75, bias=1.0)
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_streams_in_any_form(name: str) -> None:
    task = MOVED[name]
    for number, forms in enumerate(offered("cuda_stream", task)[1:]):
        found = image_settings("cuda_stream", task, forms)
        check_image_kernel("cuda_stream", task, forms, found[-number % len(found)])


def test_vectors_of_channels() -> None:
    """Neither form keeps a function of an image from being computed four elements at a time."""
    task = MOVED["in vectors"]
    setting = dict(threads=128, vector=4, vectors=1, tiled=0)
    for forms in offered("cuda_stream", task)[:2]:
        text = image_program("cuda_stream", task, forms, setting).source
        assert "*(float4*)(argument0_ptr" in text and "*(float4*)(result_ptr" in text


@pytest.mark.parametrize("name", ["joined", "across channels"])
def test_the_fallback_in_any_form(name: str) -> None:
    task = MOVED[name]
    for forms in offered("cuda_stream", task):
        check_image_kernel("cuda_default", task, forms, {})
    convolution = CONVOLUTIONS["four channels"]
    check_image_kernel("cuda_default", convolution, offered("cuda_product", convolution)[1], {})


Shape = tuple[int, ...]
WINDOW = dict(kernel=(3, 2), strides=(2, 2), padding=(1, 1, 1, 0), dilation=(1, 2))
WHOLE = dict(kernel=(5, 7), strides=(1, 1), padding=(0,) * 4, dilation=(1, 1))


def depthwise(x: Shape, out: int, kernel: tuple[int, int], *strides: int, packed: bool = True):
    """With a bias and a function."""
    pad = (kernel[0] // 2, kernel[1] // 2) * 2
    named = dict(strides=strides, padding=pad, dilation=(1, 1), groups=x[1])
    behind = (step("add", 3, 2), step("gelu", 4))
    shapes, constants = [x, (out, 1, *kernel), (out, 1, 1)], (1, 2) if packed else (2,)
    return network_task(shapes, constants, step("conv2d", 0, 1, **named), *behind)


def pooling(name: str, x: Shape, **named):
    """Behind a function, before another one."""
    counted = {} if name == "max" else {"count_include_pad": False}
    steps = (step("relu", 0), step(f"{name}_pool2d", 1, **named, **counted), step("abs", 2))
    return network_task([x], (), *steps)


WINDOWS = {
    "maxima": pooling("max", (2, 8, 9, 11), **WINDOW),
    "averages of prime channels": pooling("avg", (1, 13, 9, 11), **WINDOW),
    "averages of an image": pooling("avg", IMAGE, **WHOLE),
    "of large windows": pooling(
        "max", (1, 4, 13, 13), kernel=(9, 9), strides=(2, 1), padding=(4,) * 4, dilation=(1, 1)
    ),
    "depthwise": depthwise((1, 24, 9, 10), 24, (3, 3), 1, 2),
    "depthwise of three": depthwise((2, 3, 7, 6), 3, (5, 3), 2, 1),
    "two filters a channel": depthwise((1, 6, 7, 7), 12, (3, 3), 1, 1),
    "filters that are computed": depthwise((1, 8, 7, 7), 8, (3, 3), 1, 1, packed=False),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_channels(name: str) -> None:
    task = WINDOWS[name]
    forms = offered("cuda_window", task)[-1]
    assert forms[0] == CHANNELS_LAST
    found = image_settings("cuda_window", task, forms)
    for place in (0, len(found) // 2):
        check_image_kernel("cuda_window", task, forms, found[place])


def test_windows_read_channels_in_vectors() -> None:
    task = WINDOWS["depthwise"]
    forms = offered("cuda_window", task)[-1]
    setting = dict(threads=64, rows=2, columns=2, channels=4)
    text = image_program("cuda_window", task, forms, setting).source
    for place, what in enumerate(("argument0", "argument1", "result")):
        accesses = [line for line in text.splitlines() if f"{what}_ptr +" in line]
        assert accesses and all(f"(float4*)({what}_ptr" in line for line in accesses), place


ROWS = {
    "a mean of each channel": network_task(
        [(2, 24, 5, 7)],
        (),
        step("reduce_mean", 0, axes=(2, 3), keepdims=False),
        step("sigmoid", 1),
    ),
    "a mean with its axes, of a function": network_task(
        [(1, 13, 6, 6), (13, 1, 1)],
        (1,),
        step("relu", 0),
        step("reduce_mean", 2, axes=(2, 3), keepdims=True),
        step("add", 3, 1),
    ),
    "largest along rows": network_task(
        [(2, 6, 5, 7)], (), step("reduce_max", 0, axes=(2,), keepdims=True)
    ),
    "across channels": network_task([(2, 12, 5, 3)], (), step("softmax", 0, axis=1)),
    "instances": network_task(
        [(2, 8, 5, 6), (8,), (8,)], (1, 2), step("instance_norm", 0, 1, 2, epsilon=1e-5)
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_images_with_channels_last(name: str) -> None:
    task = ROWS[name]
    forms = offered("cuda_rows", task)[-1]
    assert forms[0] == CHANNELS_LAST
    found = image_settings("cuda_rows", task, forms)
    for place in (0, len(found) // 2):
        check_image_kernel("cuda_rows", task, forms, found[place])

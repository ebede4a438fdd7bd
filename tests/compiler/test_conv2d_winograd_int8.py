"""Winograd's convolution of codes against numpy: every result is exact, though sums overflow."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernels.one_kernel import step
from tilewright.compiler.build import rendered
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.core.forms import CHANNELS_LAST, PLAIN, Form, blocked
from tilewright.core.records import Candidate
from tilewright.graph.evaluate import run_workload
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.conv2d_winograd_int8 import SPEC

HERE = local_placement(2)
pytestmark = pytest.mark.skipif(
    "avx512vnni" not in HERE.target.features, reason="no dot products of 16 bits here"
)


def task(shape: tuple[int, ...], dtype: str, filters: int, padding: int) -> Workload:
    """A convolution that is requantized."""
    kinds = [
        TensorType(shape, dtype),
        TensorType((filters, shape[1], 3, 3), "int8"),
        TensorType((filters, 1, 1)),
    ]
    named = {"strides": (1, 1), "padding": (padding,) * 4, "dilation": (1, 1), "groups": 1}
    steps = [
        step("conv2d", 0, 1, **named),
        step("cast", 3, dtype="float32"),
        step("multiply", 4, 2),
        step("round", 5),
        step("clip", 6, minimum=0.0, maximum=255.0),
        step("cast", 7, dtype="uint8"),
    ]
    roles = ("data", "constant", "constant")
    arguments = tuple(Argument(type=k, role=role) for k, role in zip(kinds, roles, strict=True))
    return Workload(arguments=arguments, steps=tuple(steps))


def candidate(data: Form, result: Form, strip: int, rows: int, out: int) -> Candidate:
    knobs = {"lanes": 16, "tile_rows": rows, "tile_out": out, "order": "channels", "strip": strip}
    forms = (data, PLAIN, PLAIN, result)
    return Candidate(implementation=SPEC.name, settings=tuple(sorted(knobs.items())), forms=forms)


@pytest.mark.parametrize(
    ("dtype", "padding", "data", "result", "strip", "rows"),
    [
        ("uint8", 1, blocked(16), blocked(16), 0, 9),
        ("int8", 1, blocked(16), blocked(16), 1, 3),
        ("uint8", 0, blocked(64), PLAIN, 0, 3),
        ("int8", 2, PLAIN, CHANNELS_LAST, 0, 1),
    ],
)
def test_it_is_exact_where_everything_is_largest(
    dtype: str, padding: int, data: Form, result: Form, strip: int, rows: int
) -> None:
    made = task((2, 64, 11, 11), dtype, 32, padding)
    rng, ends = np.random.default_rng(0), np.iinfo(dtype)
    signs = rng.choice([-128, 127], (32, 64, 3, 3)).astype("int8")
    signs[:2] = np.array([-128, 127], "int8").reshape(2, 1, 1, 1)
    arrays = [
        rng.choice([ends.min, ends.max], made.types[0].shape).astype(dtype),
        signs,
        np.full((32, 1, 1), 1e-4, np.float32),
    ]
    arrays[0][0] = ends.max
    kernel = build_kernel(
        made, candidate(data, result, strip, rows, 2), HERE.target, HERE.resources
    )
    np.testing.assert_array_equal(kernel.run(arrays), run_workload(made, arrays))


def test_the_largest_sums_of_the_most_channels_are_exact() -> None:
    most = task((1, 1824, 4, 4), "uint8", 16, 1)
    made = Workload(arguments=most.arguments[:2], steps=most.steps[:1])
    assert 255 * 128 * 9 * 1828 > 2**29 > 255 * 128 * 9 * 1824
    arrays = [np.full((1, 1824, 4, 4), 255, "uint8"), np.full((16, 1824, 3, 3), -128, "int8")]
    settings = candidate(blocked(16), blocked(16), 0, 1, 1).settings
    forms = (blocked(16), PLAIN, blocked(16))
    chosen = Candidate(implementation=SPEC.name, settings=settings, forms=forms)
    found = build_kernel(made, chosen, HERE.target, HERE.resources).run(arrays)
    assert found.min() == -255 * 128 * 9 * 1824
    np.testing.assert_array_equal(found, run_workload(made, arrays))


def test_products_are_one_instruction() -> None:
    """LLVM would make two of it, but for a feature that says it is fast."""
    chosen = candidate(blocked(16), blocked(16), 0, 4, 2)
    made = task((1, 32, 8, 8), "uint8", 32, 1)
    text = rendered(made, chosen, HERE.target, HERE.resources, "asm")
    assert "vpdpwssd" in text
    assert "vpmaddwd" not in text
    assert "vpmovusdb" in text, "results are vector code"

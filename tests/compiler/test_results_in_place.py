"""Kernels whose result lies where one of their operands lay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm

from helpers.kernels.software_tiles import TILES, in_software
from tilewright.compiler.build import kernel_module
from tilewright.compiler.builders.llvm import build_kernel
from tilewright.compiler.operands import physical_operands
from tilewright.core.forms import PLAIN, Form, blocked, stored_in
from tilewright.core.records import Candidate, Placement
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.hardware.device import local_placement
from tilewright.kernels.halves import half_lanes
from tilewright.kernels.in_place import overwritable
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.measure.checking import sample_arguments

HERE = replace(local_placement(2), precision="bfloat16")
HALVES = pytest.mark.skipif(not half_lanes(HERE.target), reason="no products of bfloat16 here")
TILED = HERE if {*TILES} <= {*HERE.target.features} else in_software()
LINES = stored_in(blocked(32), "bfloat16")


def added_to(anchor: Step, data: tuple[int, ...], weights: tuple[int, ...], result: TensorType):
    """relu(product + shortcut)."""
    arguments = (
        Argument(type=TensorType(data)),
        Argument(type=TensorType(weights), role="constant"),
        Argument(type=result),
    )
    steps = (anchor, Step(operator="add", inputs=(3, 2)), Step(operator="relu", inputs=(4,)))
    return Workload(arguments=arguments, steps=steps)


def convolution(channels: int, extent: int, kernel: int, groups: int = 1) -> Workload:
    conv = attributes(strides=(1, 1), padding=(kernel // 2,) * 4, dilation=(1, 1), groups=groups)
    shape = (2, channels, extent, extent)
    return added_to(
        Step(operator="conv2d", inputs=(0, 1), attributes=conv),
        shape,
        (channels, channels // groups, kernel, kernel),
        TensorType(shape),
    )


def layer(rows: int, features: int) -> Workload:
    step = Step(operator="dense", inputs=(0, 1))
    return added_to(step, (rows, features), (features, features), TensorType((rows, features)))


@pytest.mark.parametrize(
    ("name", "task", "form", "on"),
    [
        ("conv2d_direct", convolution(32, 13, 3), blocked(16), HERE),
        ("conv2d_direct", convolution(24, 11, 1), blocked(8), HERE),
        ("conv2d_depthwise", convolution(32, 13, 3, 32), blocked(16), HERE),
        ("conv2d_winograd", convolution(32, 15, 3), blocked(16), HERE),
        ("conv2d_winograd2", convolution(32, 13, 3), blocked(16), HERE),
        ("dense_packed", layer(13, 48), PLAIN, HERE),
        pytest.param("conv2d_bfloat16", convolution(32, 13, 3), blocked(16), HERE, marks=HALVES),
        ("conv2d_amx", convolution(64, 19, 1), LINES, TILED),
        ("conv2d_amx", convolution(32, 13, 3), LINES, TILED),
        ("dense_amx", layer(29, 64), PLAIN, TILED),
    ],
)
def test_a_result_may_lie_where_what_is_added_lay(
    name: str, task: Workload, form: Form, on: Placement
) -> None:
    """In settings drawn from the space, tiles that go beyond the last row among them."""
    forms, spec = (form, PLAIN, form, form), implementation(name)
    space = knob_space(spec, task, on.target, on.resources, forms)
    numbers = np.random.default_rng(0).permutation([*space])[:3]
    for found in (space.settings(int(number)) for number in numbers):
        settings = tuple(sorted(found.items()))
        candidate = Candidate(implementation=name, settings=settings, forms=forms)
        assert overwritable(task, candidate) == (2,)
        kernel = build_kernel(task, candidate, on.target, on.resources)
        given = physical_operands(task, candidate, sample_arguments(task, 0))
        data, weights, shortcut = map(tvm.runtime.tensor, given)
        apart = tvm.runtime.tensor(np.zeros(*kernel.argument_types[-1]))
        kernel.call(data, weights, shortcut, apart)
        kernel.call(data, weights, shortcut, shortcut)
        assert np.any(apart.numpy())
        np.testing.assert_array_equal(shortcut.numpy(), apart.numpy(), str(candidate))


def test_the_compiler_is_told_that_they_may_share_memory() -> None:
    task, forms = convolution(32, 8, 3), (blocked(16), PLAIN, blocked(16), blocked(16))
    bare = replace(task, arguments=task.arguments[:2], steps=task.steps[:1])
    for each, apart in ((task, False), (bare, True)):
        ports = forms if each is task else (*forms[:2], forms[-1])
        space = knob_space(
            implementation("conv2d_direct"), each, HERE.target, HERE.resources, ports
        )
        settings = tuple(sorted(space.settings([*space][0]).items()))
        candidate = Candidate(implementation="conv2d_direct", settings=settings, forms=ports)
        module = kernel_module(each, candidate, HERE.target, HERE.resources)
        assert bool(module["main"].attrs["tirx.noalias"]) is apart


def test_only_what_is_read_place_by_place_is_overwritten() -> None:
    """Not what the product reads, what has another form, or what is turned behind it."""
    task, form = convolution(32, 8, 3), blocked(16)
    alike, mixed = (form, PLAIN, form, form), (form, PLAIN, PLAIN, form)

    def chosen(steps: tuple[Step, ...], forms: tuple[Form, ...], name: str = "conv2d_direct"):
        candidate = Candidate(implementation=name, settings=(), forms=forms)
        return overwritable(replace(task, steps=steps), candidate)

    assert chosen(task.steps, alike) == (2,)
    assert chosen(task.steps, mixed) == chosen(task.steps, alike, "generic") == ()
    product, added, activated = task.steps
    doubled = (product, Step(operator="add", inputs=(3, 0)), activated)
    assert chosen(doubled, alike) == (2,)
    turned = Step(
        operator="transpose", inputs=(4,), attributes=attributes(permutation=(0, 1, 3, 2))
    )
    assert chosen((product, added, turned), alike) == ()

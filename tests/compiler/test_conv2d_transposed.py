"""Transposed convolutions against numpy."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.kernels.one_kernel import step
from helpers.kernels.packed_kernel import check_kernel, constants_workload
from tilewright.core.errors import TilewrightError
from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.workload import Workload
from tilewright.kernels.conv2d_transposed import SPEC


def transposed(data, outputs, kernel, **named) -> Workload:
    """conv2d_transpose, bias, relu."""
    return constants_workload(
        [data, (data[1], outputs // named["groups"], *kernel), (outputs, 1, 1)],
        [1, 2],
        [step("conv2d_transpose", 0, 1, **named), step("add", 3, 2), step("relu", 4)],
    )


@settings(max_examples=22, deadline=None, derandomize=True)
@given(
    channels=st.sampled_from([(4, 4, 1), (4, 8, 2), (6, 6, 3), (4, 4, 4), (3, 8, 1)]),
    extents=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    extra=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    data_block=st.sampled_from([0, 2]),
    result_blocked=st.booleans(),
    choice=st.one_of(st.none(), st.integers(0, 10_000)),
)
def test_random_geometries(
    channels, extents, kernel, strides, padding, dilation, extra, data_block, result_blocked, choice
):
    inputs, outputs, groups = channels
    task = transposed(
        (1, inputs, *extents),
        outputs,
        kernel,
        strides=strides,
        padding=padding,
        dilation=dilation,
        output_padding=extra,
        groups=groups,
    )
    try:
        empty = not all(task.result.shape)
    except TilewrightError:
        empty = True
    assume(not empty)
    per_group = outputs // groups
    result = blocked(min(per_group, 8)) if result_blocked and per_group > 1 else PLAIN
    data = blocked(data_block) if data_block and inputs % data_block == 0 else PLAIN
    check_kernel(task, SPEC, (data, PLAIN, PLAIN, result), choice)


def test_upsampling_by_two_in_blocks():
    task = transposed(
        (2, 16, 7, 5),
        16,
        (4, 4),
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        output_padding=(0, 0),
        groups=1,
    )
    check_kernel(task, SPEC, (blocked(8), PLAIN, PLAIN, blocked(8)))

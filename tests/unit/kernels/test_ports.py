"""Which layouts are offered for ports."""

from __future__ import annotations

import pytest

from tilewright.core.forms import PLAIN, blocked, channel_block
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.ports import alike_ports, anchored_ports, form_options, plain_ports
from tilewright.testing.implementations import PLACEMENTS, made_up_placement, single

ON = made_up_placement(64)
ADD = single("add", (1, 32, 4, 4), (1, 32, 4, 4))


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((1, 64, 4, 4), [16, 32, 64, 0]),
        ((1, 48, 4, 4), [16, 0]),
        ((1, 24, 4, 4), [8, 24, 0]),
        ((1, 1, 4, 4), [0]),
        ((1, 64), [0]),
        ((1, 64, 8), [0]),
    ],
)
def test_options(shape: tuple[int, ...], blocks: list[int]) -> None:
    found = [channel_block(form) for form in form_options(TensorType(shape), ON.target)]
    assert found == blocks


@pytest.mark.parametrize("on", PLACEMENTS)
def test_options_divide_the_channels_and_start_with_the_register(on) -> None:
    for channels in range(1, 130):
        for form in form_options(TensorType((1, channels, 4, 4)), on.target):
            assert channels % max(1, channel_block(form)) == 0
    first = form_options(TensorType((1, 4 * on.target.lanes("float32"), 4, 4)), on.target)[0]
    assert channel_block(first) == on.target.lanes("float32")


def test_no_block_straddles_groups() -> None:
    kind = TensorType((1, 64, 4, 4))
    assert [channel_block(p) for p in form_options(kind, ON.target, groups=2)] == [16, 32, 0]


def test_operands_of_an_addition_agree() -> None:
    assert alike_ports(ADD, ON.target) == (
        (blocked(16),) * 3, (blocked(32),) * 3, (PLAIN,) * 3,
    )  # fmt: skip
    assert plain_ports(ADD) == ((PLAIN,) * 3,)


def test_a_broadcast_operand_and_constants_stay_plain() -> None:
    row = single("add", (1, 32, 4, 4), (1, 1, 4, 4))
    assert alike_ports(row, ON.target)[0] == (blocked(16), PLAIN, blocked(16))


def test_parts_of_a_concatenation_take_a_block_that_divides_them() -> None:
    both = single("concat", (1, 16, 4, 4), (1, 48, 4, 4), axis=1)
    assert alike_ports(both, ON.target) == (
        (blocked(16), blocked(16), blocked(16)),
        (PLAIN, PLAIN, blocked(32)),
        (PLAIN, PLAIN, blocked(64)),
        (PLAIN, PLAIN, PLAIN),
    )


def test_an_anchor_may_change_the_layout_and_the_residual_follows_the_result() -> None:
    convolve = single(
        "conv2d", (1, 32, 4, 4), (64, 32, 1, 1),
        strides=(1, 1), padding=(0,) * 4, dilation=(1, 1), groups=1,
    )  # fmt: skip
    residual = Workload(
        arguments=(*convolve.arguments, Argument(type=TensorType((1, 64, 4, 4)))),
        steps=(*convolve.steps, Step(operator="add", inputs=(3, 2))),
    )
    offered = anchored_ports(residual, ON.target, 0)
    assert len(offered) == 3 * 4 and offered[0] == (blocked(16), PLAIN, blocked(16), blocked(16))
    assert (blocked(32), PLAIN, blocked(64), blocked(64)) in offered


def test_a_reshape_reads_any_layout() -> None:
    flat = single("reshape", (1, 32, 4, 4), shape=(1, 512))
    assert alike_ports(flat, ON.target) == (
        (blocked(16), PLAIN), (blocked(32), PLAIN), (PLAIN, PLAIN),
    )  # fmt: skip

"""Nothing is written over memory that the same call reads through a view or a concatenation."""

from __future__ import annotations

import pytest

from helpers.networks.fused_networks import fused, planned
from helpers.networks.graph_arrangement import check_memory, place
from helpers.networks.graph_builder import Builder


def added_to_its_part() -> tuple[Builder, str, str]:
    """x is read whole where a convolution of its upper half is added to it."""
    b = Builder()
    x = b.conv(b.input(1, 16, 8, 8), 32)
    part = b.add("slice", x, starts=(0, 16, 0, 0), stops=(1, 32, 8, 8), steps=(1,) * 4)
    return b, part, x


def added_to_what_holds_it() -> tuple[Builder, str, str]:
    """Both are joined in place, and a convolution of the left one is added to the whole."""
    b = Builder()
    x = b.input(1, 16, 8, 8)
    left, right = b.conv(x, 16), b.conv(x, 16)
    return b, left, b.add("concat", left, right, axis=1)


@pytest.mark.parametrize("made", [added_to_its_part, added_to_what_holds_it])
def test_what_the_call_reads_through_another_operand_is_not_overwritten(made) -> None:
    b, part, whole = made()
    y = b.add("relu", b.add("add", b.conv(part, 32), whole))
    plan = planned(fused(b, b.conv(y, 32)))
    assert place(plan, part)[0] == whole
    call = next(call for call in plan.calls if whole in call.inputs and part in call.inputs)
    assert call.overwritable and not plan.overwritten
    check_memory(plan)


def test_what_lies_alone_is() -> None:
    b, _, x = added_to_its_part()
    y = b.add("relu", b.add("add", b.conv(b.conv(x, 32), 32), x))
    plan = planned(fused(b, b.conv(y, 32)))
    assert [*plan.overwritten.values()] == [x]
    check_memory(plan)

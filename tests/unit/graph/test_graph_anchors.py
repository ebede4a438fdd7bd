"""The bare anchor of a subgraph."""

from __future__ import annotations

from tilewright.core.forms import PLAIN, blocked
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.tasks import bare_anchor
from tilewright.graph.workload import Argument, Step, Workload

CONV = attributes(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=1)
DATA = Argument(type=TensorType((1, 32, 8, 8)))
WEIGHT = Argument(type=TensorType((64, 32, 3, 3)), role="constant")
BIAS = Argument(type=TensorType((64, 1, 1)), role="constant")


def test_the_epilogue_is_dropped() -> None:
    task = Workload(
        arguments=(DATA, WEIGHT, BIAS),
        steps=(
            Step(operator="conv2d", inputs=(0, 1), attributes=CONV),
            Step(operator="add", inputs=(3, 2)),
            Step(operator="relu", inputs=(4,)),
        ),
    )
    bare = bare_anchor(task, (blocked(16), PLAIN, PLAIN, blocked(16)))
    assert bare is not None
    workload, forms = bare
    assert workload.arguments == (DATA, WEIGHT)
    assert [step.operator for step in workload.steps] == ["conv2d"]
    assert forms == (blocked(16), PLAIN, blocked(16))
    assert bare_anchor(workload, forms) == bare


def test_a_computed_operand_becomes_data_in_its_layout() -> None:
    task = Workload(
        arguments=(DATA, WEIGHT),
        steps=(
            Step(operator="relu", inputs=(0,)),
            Step(operator="conv2d", inputs=(2, 1), attributes=CONV),
        ),
    )
    bare = bare_anchor(task, (blocked(8), PLAIN, blocked(16)))
    assert bare is not None
    workload, forms = bare
    assert workload.arguments == (DATA, WEIGHT)
    assert forms == (blocked(8), PLAIN, blocked(16))


def test_without_an_anchor_there_is_none() -> None:
    task = Workload(arguments=(DATA,), steps=(Step(operator="relu", inputs=(0,)),))
    assert bare_anchor(task, (PLAIN, PLAIN)) is None

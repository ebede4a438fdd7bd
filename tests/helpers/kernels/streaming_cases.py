"""Workloads for the tests of the specs that mostly move memory."""

from __future__ import annotations

from tilewright.graph.network import TensorType, attributes
from tilewright.graph.workload import Argument, Step, Workload


def task(shapes: list[tuple[int, ...]], operator: str, dtype: str = "float32", **named) -> Workload:
    """A workload of one step that reads all arguments."""
    return Workload(
        arguments=tuple(Argument(type=TensorType(shape, dtype)) for shape in shapes),
        steps=(
            Step(
                operator=operator,
                inputs=tuple(range(len(shapes))),
                attributes=attributes(**named),
            ),
        ),
    )


WINDOW = dict(kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), dilation=(1, 1))
POOL = task([(1, 64, 56, 56)], "max_pool2d", **WINDOW)
MEAN = task([(1, 64, 7, 7)], "reduce_mean", axes=(2, 3), keepdims=True)
SOFTMAX = task([(12, 128, 128)], "softmax", axis=2)
ADD = task([(1, 64, 56, 56), (1, 64, 56, 56)], "add")
CONCAT = task([(1, 16, 5, 5), (1, 24, 5, 5)], "concat", axis=1)
OPAQUE = task([(3, 4)], "opaque", model="", results='[["float32",[3,4]]]', output_index=0)

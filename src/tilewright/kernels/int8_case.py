"""The case that speaks for tuning fused subgraphs: an integer convolution, bare and requantized.

Tuned alone it writes four bytes per result and memory decides; fused with what makes bytes of its
sums it writes one, and arithmetic decides (apache/tvm pull request 10650).
"""

from __future__ import annotations

from tilewright.core.forms import PLAIN, Form, blocked
from tilewright.core.targets import Target
from tilewright.graph.network import TensorType, attributes
from tilewright.graph.tasks import collapse_rows
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.ports import best_block

_CHANNELS, _EXTENT = 64, 56


def int8_case(kernel: int = 1, filters: int = 0, data: str = "uint8") -> tuple[Workload, Workload]:
    """The bare convolution and the one with its requantizing steps: 64 channels of 56×56.

    `kernel` 1 gives 256 filters of 1×1 by default, any other odd one 64 of its size. The fused
    steps add a bias, scale per channel, round and saturate to signed bytes.
    """
    filters = filters or (256 if kernel == 1 else 64)
    arguments = (
        Argument(type=TensorType((1, _CHANNELS, _EXTENT, _EXTENT), data)),
        Argument(type=TensorType((filters, _CHANNELS, kernel, kernel), "int8"), role="constant"),
    )
    column = (filters, 1, 1)
    more = (
        Argument(type=TensorType(column, "int32"), role="constant"),
        Argument(type=TensorType(column, "float32"), role="constant"),
    )
    convolve = attributes(strides=(1, 1), padding=(kernel // 2,) * 4, dilation=(1, 1), groups=1)
    anchor = Step(operator="conv2d", inputs=(0, 1), attributes=convolve)
    steps = (
        anchor,
        Step(operator="add", inputs=(4, 2)),
        Step(operator="cast", inputs=(5,), attributes=attributes(dtype="float32")),
        Step(operator="multiply", inputs=(6, 3)),
        Step(operator="round", inputs=(7,)),
        Step(operator="clip", inputs=(8,), attributes=attributes(minimum=-128.0, maximum=127.0)),
        Step(operator="cast", inputs=(9,), attributes=attributes(dtype="int8")),
    )
    bare = Workload(arguments=arguments, steps=(anchor,))
    return collapse_rows(bare), collapse_rows(Workload(arguments=(*arguments, *more), steps=steps))


def int8_forms(workload: Workload, target: Target) -> tuple[Form, ...]:
    """The layouts of the case's ports inside a network: data and result in blocks."""
    constants = (PLAIN,) * (len(workload.arguments) - 1)
    lanes = target.lanes(workload.computed_in)
    data = blocked(best_block(workload.arguments[0].type.shape[1], lanes))
    return (data, *constants, blocked(best_block(workload.result.shape[1], lanes)))

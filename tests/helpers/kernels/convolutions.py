"""Convolutions with epilogues, and forms for their ports."""

from __future__ import annotations

from helpers.kernels.one_kernel import step
from helpers.kernels.packed_kernel import constants_workload
from tilewright.core.forms import PLAIN, Form
from tilewright.graph.workload import Step, Workload

Pair = tuple[int, int]


def conv(
    data: tuple[int, int, int, int],
    filters: int,
    kernel: Pair = (3, 3),
    epilogue: str = "",
    **named,
) -> Workload:
    """conv2d, then `b` bias, `r` residual, `u` relu in the order of `epilogue`."""
    given_ = {
        "strides": (1, 1), "padding": (0,) * 4, "dilation": (1, 1), "groups": 1, **named
    }  # fmt: skip
    weight = (filters, data[1] // given_["groups"], *kernel)
    bare = constants_workload([data, weight], [1], [step("conv2d", 0, 1, **given_)])
    shapes: list[tuple[int, ...]] = [data, weight]
    constants = [1]
    for letter in epilogue.replace("u", ""):
        if letter == "b":
            constants.append(len(shapes))
        shapes.append((filters, 1, 1) if letter == "b" else bare.result.shape)
    steps: list[Step] = [step("conv2d", 0, 1, **given_)]
    operand, value = 2, len(shapes)
    for letter in epilogue:
        if letter == "u":
            steps.append(step("relu", value))
        else:
            steps.append(step("add", value, operand))
            operand += 1
        value += 1
    return constants_workload(shapes, constants, steps)


def forms_for(task: Workload, data: Form, result: Form) -> tuple[Form, ...]:
    """Residuals come in the result's layout."""
    ports = [data, PLAIN]
    for argument in task.arguments[2:]:
        ports.append(result if argument.role == "data" else PLAIN)
    return (*ports, result)

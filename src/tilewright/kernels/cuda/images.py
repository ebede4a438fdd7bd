"""Where the channels of images lie on GPUs: before rows and columns (NCHW, which is plain), or
innermost (NHWC).

    image_ports(a convolution with a residual)    (plain, plain, plain, plain)
                                                  (acdb, plain, acdb, acdb)
                                                  (plain, plain, acdb, acdb)
                                                  (acdb, plain, plain, plain)

A kernel that reads one and writes the other costs no conversion of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tilewright.core.forms import CHANNELS_LAST, PLAIN, Form
from tilewright.core.layouts import Layout
from tilewright.core.records import Candidate
from tilewright.graph.arrays import to_physical
from tilewright.graph.network import Array, TensorType, attributes
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Argument, Step, Workload
from tilewright.kernels.base import anchored
from tilewright.kernels.cuda.base import ColumnKernels
from tilewright.kernels.ports import Ports

_IMAGE_RANK = 4
_FILTERS_LAST = {
    "conv2d": Form(Layout(order=(2, 3, 1, 0))),
    "conv2d_transpose": Form(Layout(order=(2, 3, 0, 1))),
}
"""Taps, input channels, output channels, by anchor."""
_KEEPING = frozenset({"pad", "slice", "concat", "resize_nearest"})
"""Movements after which the channels are still axis 1."""


def image_forms(kind: TensorType) -> Ports:
    """Plain, and channels last where that is another order in memory."""
    shape = kind.shape
    differs = len(shape) == _IMAGE_RANK and shape[1] > 1 and shape[2] * shape[3] > 1
    return (PLAIN, CHANNELS_LAST) if differs else (PLAIN,)


@lru_cache(maxsize=4096)
def image_ports(workload: Workload) -> tuple[Ports, ...]:
    """The anchor's image in either form, the result in either; what has the shape of the result
    follows it. Constants are plain."""
    arriving = image_forms(anchored(workload)[1][0]) if _keeps(workload) else (PLAIN,)
    leaving = image_forms(workload.result)
    alike = [(form, form) for form in arriving if form in leaving]
    mixed = [(a, b) for a in arriving for b in leaving if a != b]
    return tuple(dict.fromkeys(_ports(workload, *both) for both in (*alike, *mixed)))


def _ports(workload: Workload, arriving: Form, leaving: Form) -> Ports:
    read, found = feeding(workload), list[Form]()
    for index, argument in enumerate(workload.arguments):
        form = arriving if index in read else leaving
        alike = index in read or argument.type.shape == workload.result.shape
        fits = alike and argument.role == "data" and form in image_forms(argument.type)
        found.append(form if fits else PLAIN)
    return (*found, leaving)


@lru_cache(maxsize=4096)
def moving_ports(workload: Workload) -> tuple[Ports, ...]:
    """All images that are read in either form, the result in either; with an anchor in the same."""
    written = image_forms(workload.result)
    kinds = [argument.type for argument in workload.arguments if argument.role == "data"]
    read = tuple(dict.fromkeys(form for kind in kinds for form in image_forms(kind))) or (PLAIN,)
    alike = [(form, form) for form in read if form in written]
    mixed = [(a, b) for a in read for b in written if a != b and workload.anchor is None]
    found: list[Ports] = []
    for arriving, leaving in (*alike, *mixed):
        forms = [
            arriving if it.role == "data" and arriving in image_forms(it.type) else PLAIN
            for it in workload.arguments
        ]
        found.append((*forms, leaving))
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=4096)
def in_memory(workload: Workload, forms: Ports) -> Workload:
    """The same computed of tensors as they lie in memory: row by row, with a transposition behind
    each argument, and one before the result, that has another order.

        relu(x) of NHWC    transpose(relu(transpose(x)))
    """
    orders = [form.layout.order for form in forms]
    if not any(orders):
        return workload
    arguments, turns = list[Argument](), list[Step]()
    places: dict[int, int] = {}
    count = len(workload.arguments)
    for index, argument in enumerate(workload.arguments):
        shape = forms[index].physical_shape(argument.type.shape)
        arguments.append(replace(argument, type=TensorType(shape, argument.type.dtype)))
        places[index] = index
        if orders[index]:
            back = tuple(orders[index].index(axis) for axis in range(len(shape)))
            places[index] = count + len(turns)
            turns.append(_turn(index, back))
    steps = list(turns)
    for value, step in enumerate(workload.steps, start=count):
        places[value] = count + len(steps)
        steps.append(replace(step, inputs=tuple(places[each] for each in step.inputs)))
    if orders[-1]:
        steps.append(_turn(count + len(steps) - 1, orders[-1]))
    return Workload(arguments=tuple(arguments), steps=tuple(steps))


def turns(workload: Workload, forms: Ports) -> bool:
    """Whether some of a workload's images lie in another order than others."""
    kinds = [*(argument.type for argument in workload.arguments), workload.result]
    pairs = zip(kinds, forms, strict=True)
    return len({form for kind, form in pairs if len(image_forms(kind)) > 1}) > 1


def _turn(value: int, permutation: tuple[int, ...]) -> Step:
    named = attributes(permutation=permutation)
    return Step(operator="transpose", inputs=(value,), attributes=named)


@lru_cache(maxsize=4096)
def feeding(workload: Workload) -> frozenset[int]:
    """The arguments that the anchor's first operand is made of."""
    return frozenset(v for v in _made_of(workload) if v < len(workload.arguments))


def _made_of(workload: Workload) -> set[int]:
    """The values that the anchor's first operand is made of, itself included."""
    first, found = len(workload.arguments), {anchored(workload)[0].inputs[0]}
    for value in range(len(workload.types) - 1, first - 1, -1):
        if value in found:
            found.update(workload.steps[value - first].inputs)
    return found


def _keeps(workload: Workload) -> bool:
    """Whether the steps before the anchor leave the channels where they are."""
    first = len(workload.arguments)
    steps = [workload.steps[value - first] for value in _made_of(workload) if value >= first]
    return all(OPERATORS[it.operator].elementwise or it.operator in _KEEPING for it in steps)


def alike(workload: Workload, forms: Ports) -> bool:
    """Whether the anchor's image and the result lie in the same order, where that can be told."""
    kinds = (anchored(workload)[1][0], workload.result)
    pairs = zip(kinds, channels_last(workload, forms), strict=True)
    return len({last for kind, last in pairs if len(image_forms(kind)) > 1}) < 2


def channels_last(workload: Workload, forms: Ports) -> tuple[bool, bool]:
    """Whether the channels of the anchor's image lie innermost, and whether those of the result do;
    without `forms` all is plain."""
    if not forms:
        return False, False
    read = any(forms[index] == CHANNELS_LAST for index in feeding(workload))
    return read, forms[-1] == CHANNELS_LAST


def packed_forms(workload: Workload, forms: Ports) -> dict[int, Form]:
    """The forms that constants are packed in ahead, by argument: where an image has its channels
    last, filters are rows of output channels, as dense layers have them."""
    step = workload.anchor
    form = _FILTERS_LAST.get(step.operator) if step is not None else None
    if step is None or form is None or True not in channels_last(workload, forms):
        return {}
    weight = step.inputs[1]
    once = sum(each.inputs.count(weight) for each in workload.steps) == 1
    return {weight: form} if once and workload.is_constant(weight) else {}


class ImageKernels(ColumnKernels):
    """The parts of a spec of kernels that pack the filters of images with their channels last."""

    def packed_shapes(
        self, workload: Workload, candidate: Candidate
    ) -> Mapping[int, tuple[int, ...]]:
        """Rows of output channels."""
        packed = packed_forms(workload, candidate.forms)
        kinds = [argument.type for argument in workload.arguments]
        return {index: form.physical_shape(kinds[index].shape) for index, form in packed.items()}

    def pack(
        self, workload: Workload, candidate: Candidate, constants: Mapping[int, Array]
    ) -> Mapping[int, Array]:
        """Those filters, and all other constants as they are."""
        packed = packed_forms(workload, candidate.forms)
        return {
            index: to_physical(array, packed[index]) if index in packed else array
            for index, array in constants.items()
        }

"""What kernels on codes of eight bits have in common.

Dot-product instructions add four products to each 32-bit lane:

    vnni     vpdpbusd of x86              unsigned data, signed weights
    sdot     of ARM's dot products        signed data, signed weights
    usdot    of ARM's matrix products     unsigned data, signed weights

An instruction takes data of the other sign as x + 128 or x - 128, which is a flip of one bit; -128
Σw or 128 Σw of every column is added to the sums again and lies in one more slot behind its
weights: the lowest bytes of all lanes, then the next ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.core.records import Settings
from tilewright.core.targets import Target
from tilewright.graph.network import Array, Graph
from tilewright.graph.workload import Workload
from tilewright.kernels.base import SINGLE
from tilewright.kernels.conv2d_dots import dot_units, lanes_of

CODES = frozenset({"int8", "uint8"})
"""The element types of codes."""
QUAD = 4
"""Products that one dot-product instruction adds to a lane."""
WIDEN = "widen"
"""In place of an instruction: bytes are widened before they are multiplied."""
_OFFSET = 128
(_SINGLES,) = SINGLE
_LARGEST_IN_SINGLES = 2**24
ONE_QUANTUM = 1.01 / 127
"""Of a code that rounds to its neighbour, relative to the largest."""


class ByteDot(NamedTuple):
    """A dot-product instruction: the type of the `data` that it takes beside signed weights, and
    the `units` that have it."""

    data: str
    units: frozenset[str]


_DOTS = {
    "vnni": ByteDot("uint8", frozenset({"avx512vnni", "avxvnni"})),
    "sdot": ByteDot("int8", frozenset({"dotprod"})),
    "usdot": ByteDot("uint8", frozenset({"i8mm"})),
}
_UNITS = frozenset[str]().union(*(dot.units for dot in _DOTS.values()))
_BESIDE, _NOT_BESIDE = frozenset({"avx512bf16"}), frozenset({"avx512fp16", "avxvnni"})
"""Units that tell processors apart."""


def dot_lanes(target: Target) -> tuple[int, ...]:
    """Lanes of 32 bits for which the device has dot products of bytes."""
    return lanes_of(dot_units(target, _UNITS))


def one_in_a_cycle(target: Target) -> bool:
    """Whether this is a Zen 4, which begins a dot product of 512 bits in each cycle, where others
    begin two. One Xeon, Cooper Lake, has the same units, so that it is taken for one."""
    names = {unit.name for unit in target.units}
    return names >= _BESIDE and names.isdisjoint(_NOT_BESIDE)


def usual_dot(target: Target, lanes: int, data: str) -> str:
    """The instruction for so many lanes and data of a type: one that takes it as it is, else one
    that takes it with an offset, else `WIDEN`."""
    able = (n for n, dot in _DOTS.items() if lanes in lanes_of(dot_units(target, dot.units)))
    return min(able, key=lambda name: _DOTS[name].data != data, default=WIDEN)


def terms(settings: Settings) -> int:
    """Products that are added to a lane at once."""
    return 1 if settings["dot"] == WIDEN else QUAD


def offset(settings: Settings, data: str) -> int:
    """What is added to data of a type, so that the instruction takes it."""
    dot = _DOTS.get(str(settings["dot"]))
    if dot is None or dot.data == data:
        return 0
    return _OFFSET if data == "int8" else -_OFFSET


def takes_words(settings: Settings) -> bool:
    """Whether the instruction of a setting is known to take four codes of data as one word."""
    return settings["dot"] == "vnni"


def exact_in_singles(products: int) -> bool:
    """Whether single precision holds every sum of so many products of data and signed weights."""
    return products * 255 * 128 <= _LARGEST_IN_SINGLES


def widened_to(products: int) -> str:
    """The type to which codes are widened where so many products are added up."""
    return _SINGLES if exact_in_singles(products) else "int32"


def taken_data(settings: Settings) -> str:
    """The type of data that the instruction of a setting takes."""
    return _DOTS[str(settings["dot"])].data


def rate(target: Target, computed_in: str, *, dots: bool) -> float:
    """Operations per cycle and core: by dot products where there are any, else by widened products,
    which take three instructions where a dot product takes one."""
    plain, lanes = target.operations_per_cycle(computed_in), target.lanes(computed_in)
    found = [
        unit.operations_per_cycle // unit.granule[1] * lanes for unit in dot_units(target, _UNITS)
    ]
    return max(found, default=plain) if dots else plain / 3


def with_offsets(packed: Array, sums: Any, added: int) -> Array:
    """Packed weights [chunks, slots, lanes, width] with what `added` to the data makes of the sums,
    its sign changed, behind the others; `sums` are those of the weights of all columns."""
    chunks, _, lanes, width = packed.shape
    planes = (-added * sums.astype("<i4")).view(np.int8).reshape(chunks, lanes, QUAD)
    last = planes.swapaxes(1, 2).reshape(chunks, 1, lanes, width)
    return np.concatenate([packed, last], axis=1)


def code_error(workload: Workload) -> float:
    """Sums are exact: nothing may differ. A sum behind a product in single precision may be
    contracted with it, so that a result rounds to its neighbour."""
    if workload.result.dtype in SINGLE:
        return 2e-6
    contracted = any(
        step.operator in ("add", "subtract")
        and any(_is_product(workload, value) for value in step.inputs)
        for step in workload.steps
    )
    return ONE_QUANTUM if contracted else 1e-10


def _is_product(workload: Workload, value: int) -> bool:
    step = value - len(workload.arguments)
    floats = workload.types[value].dtype in SINGLE
    return step >= 0 and floats and workload.steps[step].operator == "multiply"


def rounds_to_codes(graph: Graph) -> bool:
    """Whether results inside a network are rounded to codes of eight bits."""
    makers = graph.producers()
    clips = (
        makers.get(node.inputs[0])
        for node in graph.nodes
        if node.operator == "cast" and graph.types[node.output].dtype in CODES
    )
    return any(clip is not None and clip.operator == "clip" for clip in clips)

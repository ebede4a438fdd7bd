"""Layouts that kernels can read and write: what the graph tuner chooses from.

Every kernel reads and writes through index maps, so more combinations work than are worth
offering. What is offered are whole registers of channels, two and four of them, and plain; ports
of one shape agree unless the anchor stands between them.
"""

from __future__ import annotations

from itertools import product

from tilewright.core.element_types import element_type
from tilewright.core.forms import PLAIN, Form, blocked, channel_block
from tilewright.core.targets import Target
from tilewright.graph.operators import OPERATORS
from tilewright.graph.tensor import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.blocks import channel_blocks

Ports = tuple[Form, ...]
_JOINING = frozenset({"concat", "slice", "pad"})
_IMAGE_RANK = 4


def form_options(kind: TensorType, target: Target, *, groups: int = 1) -> Ports:
    """Layouts worth considering for a tensor, the usual one first and plain last.

    Images [n, c, h, w] may be blocked by as many channels as one, two or four registers hold;
    where not even one register's worth divides them, by what does. No block straddles two of the
    `groups` of channels. Everything else is plain, and so is all where there are no registers.
    """
    if not target.vector_bytes:
        return (PLAIN,)
    if len(kind.shape) != _IMAGE_RANK or kind.shape[1] == 1:
        return (PLAIN,)
    channels = kind.shape[1] // groups
    lanes = target.lanes(element_type(kind.dtype).computed_in)
    blocks = [b for b in (lanes, 2 * lanes, 4 * lanes) if channels % b == 0]
    if not blocks:
        blocks = [b for b in channel_blocks(channels, lanes)[:2] if b > 1]
    return (*(blocked(block) for block in blocks), PLAIN)


def plain_ports(workload: Workload) -> tuple[Ports, ...]:
    """Row-major everywhere."""
    return ((PLAIN,) * (len(workload.arguments) + 1),)


def anchored_ports(
    workload: Workload, target: Target, data: int, *, groups: int = 1
) -> tuple[Ports, ...]:
    """The anchor's data (argument `data`) in any layout, the result in any whose blocks lie within
    one of its `groups`; operands of the result's shape follow the result, all others are plain.

    Data that the subgraph computes itself comes as the result is.
    """
    if data >= len(workload.arguments):
        return _alike(workload, form_options(workload.result, target, groups=groups))
    arriving = form_options(workload.arguments[data].type, target)
    leaving = form_options(workload.result, target, groups=groups)
    found: list[Ports] = []
    for read, written in product(arriving, leaving):
        ports = [_following(workload, index, written) for index in range(len(workload.arguments))]
        ports[data] = read
        found.append((*ports, written))
    return tuple(found)


def alike_ports(workload: Workload, target: Target) -> tuple[Ports, ...]:
    """One layout for the result and all operands with its channels.

    Operands of a concatenation or a slice take the same block where it divides their channels.
    Where data moves otherwise, the first operand may come in any layout.
    """
    moves = any(
        OPERATORS[step.operator].movement and step.operator not in _JOINING
        for step in workload.steps
    )
    if moves and workload.arguments[0].role == "data":
        return anchored_ports(workload, target, 0)
    return _alike(workload, form_options(workload.result, target))


def _alike(workload: Workload, results: Ports) -> tuple[Ports, ...]:
    found: list[Ports] = []
    for written in results:
        ports = tuple(_agreeing(workload, i, written) for i in range(len(workload.arguments)))
        found.append((*ports, written))
    return tuple(dict.fromkeys(found))


def _following(workload: Workload, index: int, written: Form) -> Form:
    """`written` for data of the result's shape."""
    argument = workload.arguments[index]
    alike = argument.role == "data" and argument.type.shape == workload.result.shape
    return written if alike else PLAIN


def _agreeing(workload: Workload, index: int, written: Form) -> Form:
    """`written` for image data whose channels it divides."""
    argument = workload.arguments[index]
    shape = argument.type.shape
    if argument.role != "data" or len(shape) != _IMAGE_RANK or written == PLAIN:
        return PLAIN
    return written if shape[1] % channel_block(written) == 0 and shape[1] > 1 else PLAIN

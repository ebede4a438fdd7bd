"""One layout per tensor: channel-blocked where convolutions and pools work, plain elsewhere.

Every kernel reads through an index map, so a layout change costs no task of its own: whoever reads
a tensor in another layout converts while reading. What matters is that neighbours agree, and they
do because the block follows from the channels and the device alone. Imported kernels, those of
opaque operators, and writes to caches know no map; what they read is plain.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.forms import (
    CHANNELS_LAST,
    PLAIN,
    Form,
    blocked,
    channel_block,
    in_channel_blocks,
)
from tilewright.core.grouping import grouped
from tilewright.core.targets import Resources, Target
from tilewright.graph.fuse import FusedNetwork, TaskCall
from tilewright.graph.network import TensorType
from tilewright.graph.workload import Workload
from tilewright.kernels.amx import line_of
from tilewright.kernels.mmla import word_of
from tilewright.kernels.ports import best_block
from tilewright.kernels.registry import applicable

_CONVOLUTIONS = frozenset({"conv2d", "conv2d_transpose"})
_WITHOUT_MAP = frozenset({"opaque", "cache_write"})
_FOLLOWERS = frozenset(
    {
        "max_pool2d", "avg_pool2d", "lrn", "instance_norm", "elementwise", "pad", "concat", "slice",
        "resize_nearest", "interpolate",
    }
)  # fmt: skip


def choose_forms(
    network: FusedNetwork, target: Target, resources: Resources, precision: str = "float32"
) -> dict[str, Form]:
    """The layout of every tensor that a call reads or writes; inputs, outputs and what opaque
    operators and writes to caches read stay plain. Where tile registers multiply in a `precision`,
    or products of matrices codes, images lie in whole lines of them."""
    forms: dict[str, Form] = dict.fromkeys(network.graph.inputs, PLAIN)
    outputs = set(network.graph.outputs)
    readers = grouped([(tensor, call) for call in network.calls for tensor in call.inputs])
    convolved = _convolved(network, readers)
    for call in network.calls:
        read_by = readers.get(call.output, [])
        flat = any(reader.workload.anchor_name in _WITHOUT_MAP for reader in read_by)
        if flat or call.output in outputs:
            forms[call.output] = PLAIN
        elif call.output in convolved and _turns(call.workload):
            forms[call.output] = _whole_registers(call.workload, target, resources)
        else:
            form = _result_layout(call, forms, read_by, target, resources)
            result = call.workload.result
            forms[call.output] = in_lines(form, call.workload, result, target, precision)
    return forms


def in_lines(
    form: Form, workload: Workload, kind: TensorType, target: Target, precision: str
) -> Form:
    """Wider blocks of a convolution's image of some type, of as many channels as a line of a tile
    register holds, or as ARM's products of matrices take of a pixel."""
    line = line_of(kind.dtype, target, precision) or word_of(kind.dtype, target)
    if not line or workload.anchor_name not in _CONVOLUTIONS or not channel_block(form):
        return form
    step = workload.anchor
    groups = step.integer("groups") if step is not None else 1
    return blocked(line) if kind.shape[1] // groups % line == 0 else form


def _convolved(network: FusedNetwork, readers: Mapping[str, list[TaskCall]]) -> set[str]:
    """The images that convolutions read, directly or behind what keeps a layout."""
    found: set[str] = set()
    for call in reversed(network.calls):
        for reader in readers.get(call.output, []):
            keeps = reader.workload.anchor_name in _FOLLOWERS and reader.output in found
            if keeps or call.output in _image(reader):
                found.add(call.output)
    return found


def _image(call: TaskCall) -> set[str]:
    """What a convolution is of: neither its weights nor what is added behind it."""
    workload = call.workload
    if workload.anchor is None or workload.anchor_name not in _CONVOLUTIONS:
        return set()
    values, arguments = {workload.anchor.inputs[0]}, len(workload.arguments)
    for result, step in reversed([*enumerate(workload.steps, arguments)]):
        if result in values:
            values.update(step.inputs)
    return {tensor for value, tensor in enumerate(call.inputs) if value in values}


def _turns(workload: Workload) -> bool:
    """Whether another axis becomes the innermost one, as between channels first and last: such a
    copy runs through memory in order where channels lie in blocks, and jumps where they do not."""
    orders = (s.integers("permutation") for s in workload.steps if s.operator == "transpose")
    return any(order[-1] != len(order) - 1 for order in orders)


def _whole_registers(workload: Workload, target: Target, resources: Resources) -> Form:
    """Images in blocks of as many channels as a register holds, where the usual kernel writes
    such."""
    lanes = target.lanes(workload.computed_in)
    usual, *_ = applicable(workload, target, resources)
    offered = {ports[-1] for ports in usual.port_forms(workload, target, resources)}
    return blocked(lanes) if lanes > 1 and blocked(lanes) in offered else PLAIN


def _result_layout(
    call: TaskCall,
    forms: Mapping[str, Form],
    readers: list[TaskCall],
    target: Target,
    resources: Resources,
) -> Form:
    workload = call.workload
    shape = workload.result.shape
    if len(shape) != 4 or shape[1] == 1:
        return PLAIN
    anchor = workload.anchor_name
    if anchor in _CONVOLUTIONS:
        if readers and all(_turns(reader.workload) for reader in readers):
            return _whole_registers(workload, target, resources)
        undone = _only_plain(readers)
        return PLAIN if undone else _convolution_form(workload, target, resources)
    if anchor == "concat" and workload.steps[0].integer("axis") == 1:
        return _concatenated(call, forms, shape[1], target)
    follows = anchor in _FOLLOWERS or anchor.startswith("reduce_")
    return _follow(call, forms, shape[1]) if follows else PLAIN


def _only_plain(readers: list[TaskCall]) -> bool:
    """Whether all readers rearrange the tensor, so that blocks would only be undone."""
    movers = {"reshape", "transpose", "softmax", "dense", "batch_matmul", "gather"}
    return bool(readers) and all(call.workload.anchor_name in movers for call in readers)


def _convolution_form(workload: Workload, target: Target, resources: Resources) -> Form:
    """Blocks, unless they are wider than a register and do not fill several; what is neither blocks
    nor plain as an implementation usually writes it, channels last only as the first one does."""
    lanes = target.lanes(workload.computed_in)
    for place, spec in enumerate(applicable(workload, target, resources)):
        usual = spec.port_forms(workload, target, resources)[0][-1]
        if usual == CHANNELS_LAST and place:
            continue
        if not in_channel_blocks(usual):
            return usual
        block = channel_block(usual)
        if block > 1:
            return PLAIN if block > lanes and block % lanes else usual
    return PLAIN


def _follow(call: TaskCall, forms: Mapping[str, Form], channels: int) -> Form:
    """The blocked layout of an operand with as many channels, or of one that it takes whole blocks
    of, else plain."""
    pairs = zip(call.inputs, call.workload.arguments, strict=True)
    for index, (tensor, argument) in enumerate(pairs):
        form = forms.get(tensor, PLAIN)
        block = channel_block(form) if in_channel_blocks(form) else 0
        image = len(argument.type.shape) == 4
        same = image and (
            argument.type.shape[1] == channels or _in_whole_blocks(call.workload, index, block)
        )
        if block and same and channels % block == 0:
            return form
    return PLAIN


def _in_whole_blocks(workload: Workload, image: int, block: int) -> bool:
    """Whether of an argument, an image, only a run of channels is read, from the begin of a block
    on."""
    readers = [step for step in workload.steps if image in step.inputs]
    return block > 0 and all(
        step.operator == "slice"
        and step.integers("steps")[1] == 1
        and step.integers("starts")[1] % block == 0
        for step in readers
    )


def _concatenated(call: TaskCall, forms: Mapping[str, Form], channels: int, target: Target) -> Form:
    joined = [forms.get(tensor, PLAIN) for tensor in call.inputs]
    if not all(map(in_channel_blocks, joined)):
        return PLAIN
    block, *others = {channel_block(form) for form in joined}
    if others:
        block = best_block(channels, target.lanes(call.workload.computed_in))
    return blocked(block) if block else PLAIN

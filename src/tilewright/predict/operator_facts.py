"""What is known of a workload whatever computes it: sizes, geometry, the roofline.

Sizes are logarithms to base 2 of what `docs/reference/predict.md` names; a fact that a workload
does not have is absent. Nothing here needs a compiler or a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod

from tilewright.core.records import Device
from tilewright.graph.layout import channel_block
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.convolution import convolution

ROOF = "roof_s"
_LEAST_S = 1e-7
_BYTE_TYPES = frozenset({"int8", "uint8"})
_PARTIAL = frozenset({"gather", "slice"})
_WINDOWED = ("strides", "padding", "dilation", "kernel")


def roofline_s(workload: Workload, peaks: Mapping[str, float]) -> float:
    """Seconds that arithmetic or moving every byte once need at least, whichever is more.

    `peaks` are `flop_per_s`, `bytes_per_s` (constants come from memory) and `cache_bytes_per_s`
    (everything else from the cache). Dot products of bytes do four multiply-adds per lane.
    Williams, Waterman & Patterson, "Roofline", 2009.
    """
    read = [_bytes_read(workload, index) for index in range(len(workload.arguments))]
    constants = sum(read[i] for i, a in enumerate(workload.arguments) if a.role == "constant")
    moving_s = constants / peaks["bytes_per_s"]
    moving_s += (sum(read) + workload.result.bytes - constants) / peaks["cache_bytes_per_s"]
    anchor = workload.anchor_index
    bytewise = anchor is not None and workload.step_types(anchor)[0][0].dtype in _BYTE_TYPES
    return max(workload.flop / (peaks["flop_per_s"] * (4 if bytewise else 1)), moving_s, _LEAST_S)


def _bytes_read(workload: Workload, argument: int) -> int:
    """Bytes of an argument that are read at least once: of what is only gathered or cut from, no
    more than comes out."""
    size = workload.arguments[argument].type.bytes
    readers = [n for n, step in enumerate(workload.steps) if argument in step.inputs]
    if not readers or any(workload.steps[n].operator not in _PARTIAL for n in readers):
        return size
    return min(size, sum(workload.step_types(n)[1].bytes for n in readers))


def operator_facts(workload: Workload, device: Device) -> dict[str, float]:
    """Facts by name, for any workload."""
    constants = sum(a.type.bytes for a in workload.arguments if a.role == "constant")
    moving = sum(a.type.bytes for a in workload.arguments) - constants
    result = workload.result
    last = result.shape[-1] if result.shape else 1
    facts = {
        "flop": log2(max(1, workload.flop)),
        "constant_bytes": log2(constants + 1),
        "data_bytes": log2(moving + 1),
        "result_bytes": log2(result.bytes + 1),
        "intensity": log2(max(1, workload.flop) / max(1, workload.bytes)),
        "steps": float(len(workload.steps)),
        "arguments": float(len(workload.arguments)),
        "rank": float(len(result.shape)),
        "innermost": log2(last),
        "innermost_whole": _filled(last, device.lanes_f32),
        "element_bytes": result.bytes / max(1, result.elements),
        "constants_of_l2": log2((constants + 1) / device.cpu.l2_bytes),
        "data_of_l2": log2((moving + result.bytes + 1) / device.cpu.l2_bytes),
        "all_of_l3": log2((workload.bytes + 1) / max(1, device.cpu.l3_bytes)),
    }
    for step in workload.steps:
        name = f"steps_{step.operator}"
        facts[name] = facts.get(name, 0.0) + 1.0
    facts |= {f"extent_{n}": log2(max(1, size)) for n, size in enumerate(result.shape[::-1])}
    facts |= _of_the_anchor(workload, device)
    return facts


def _of_the_anchor(workload: Workload, device: Device) -> dict[str, float]:
    index, anchor = workload.anchor_index, workload.anchor
    if index is None or anchor is None:
        return _of_movement(workload)
    if anchor.operator == "conv2d":
        return _of_convolution(workload, device)
    inputs, output = workload.step_types(index)
    facts = {f"input_{n}": log2(max(1, size)) for n, size in enumerate(inputs[0].shape[::-1])} | {
        "depth": log2(max(1.0, workload.flop / (2 * max(1, output.elements))))
    }
    for name, value in anchor.attributes:
        if name in _WINDOWED and isinstance(value, tuple):
            facts |= {f"{name}_{n}": float(part) for n, part in enumerate(value)}
    return facts


def _of_movement(workload: Workload) -> dict[str, float]:
    """Where the innermost axis comes from decides how data moves."""
    first = workload.arguments[0].type.shape
    facts = {f"input_{n}": log2(max(1, size)) for n, size in enumerate(first[::-1])}
    moves = [step for step in workload.steps if OPERATORS[step.operator].movement]
    for name, value in moves[0].attributes if moves else ():
        if isinstance(value, tuple) and name in ("permutation", "axes", "perm"):
            facts |= {f"axis_{n}": float(part) for n, part in enumerate(value[::-1])}
    return facts


def _of_convolution(workload: Workload, device: Device) -> dict[str, float]:
    conv = convolution(workload)
    lanes = device.lanes_f32
    taps = prod(conv.kernel)
    padded = (conv.in_height + sum(conv.padding[::2])) * (conv.in_width + sum(conv.padding[1::2]))
    pixels = conv.out_height * conv.out_width
    return {
        "batch": float(conv.batch),
        "in_channels": log2(conv.in_channels),
        "out_channels": log2(conv.out_channels),
        "group_in": log2(conv.group_in),
        "group_out": log2(conv.group_out),
        "groups": log2(conv.groups),
        "in_whole": _filled(conv.group_in, lanes),
        "out_whole": _filled(conv.group_out, lanes),
        "in_height": log2(conv.in_height),
        "out_height": log2(conv.out_height),
        "out_width": log2(conv.out_width),
        "out_pixels": log2(pixels),
        "kernel_height": float(conv.kernel[0]),
        "kernel_width": float(conv.kernel[1]),
        "stride": float(conv.strides[0]),
        "dilation": float(conv.dilation[0]),
        "padding": float(sum(conv.padding)),
        "border_share": 1 - conv.in_height * conv.in_width / padded,
        "halo": taps * pixels / max(1, padded) / prod(conv.strides),
        "depth": log2(conv.group_in * taps),
        "threads_over_rows": _balance(conv.batch * conv.out_height, device.threads),
    }


def layout_facts(layouts: tuple[str, ...]) -> dict[str, float]:
    """The blocks of channels of the first operand and of the result, 0 where they are plain."""
    ports = {"data_block": layouts[0], "result_block": layouts[-1]}
    return {name: float(_block(layout)) for name, layout in ports.items()}


def _block(layout: str) -> int:
    return 0 if layout == "plain" else channel_block(layout)


def _filled(extent: int, lanes: int) -> float:
    """Share of whole vectors that an extent fills."""
    return extent / (-(-extent // lanes) * lanes)


def _balance(pieces: float, threads: int) -> float:
    """Share of the threads that equal pieces keep busy."""
    return pieces / (-(-pieces // threads) * threads)

"""Features of kernels as people read them.

`op.data_of_l2`, −7.44, is shown as "data ÷ L2 cache", 0.00576. Files and JSON keep the names and
values that the models see; docs/reference/predict.md explains them."""

from __future__ import annotations

from tilewright.report import shown

_LOGARITHMS = {
    "op.flop": "arithmetic, FLOP",
    "op.constant_bytes": "weights",
    "op.data_bytes": "operands without weights",
    "op.result_bytes": "result",
    "op.intensity": "FLOP per byte",
    "op.roof_s": "roofline time of the definition",
    "op.constants_of_l2": "weights ÷ L2 cache",
    "op.data_of_l2": "data ÷ L2 cache",
    "op.all_of_l3": "weights and data ÷ L3 cache",
    "op.innermost": "innermost size of the result",
    "op.in_channels": "input channels",
    "op.out_channels": "output channels",
    "op.groups": "groups",
    "op.group_in": "input channels of a group",
    "op.group_out": "output channels of a group",
    "op.in_height": "input height",
    "op.out_height": "output height",
    "op.out_width": "output width",
    "op.out_pixels": "output height × width",
    "op.depth": "products per result",
    "schedule.estimate_s": "estimated time",
    "schedule.estimate_over_roof": "estimated ÷ roofline time",
    "schedule.round_s": "estimate per round of the threads",
    "schedule.weight_tile_bytes_of_l1": "weights of a piece of work ÷ L1 cache",
    "schedule.weight_tile_bytes_of_l2": "weights of a piece of work ÷ L2 cache",
    "schedule.workspace_bytes_of_l1": "buffers between stages ÷ L1 cache",
    "schedule.workspace_bytes_of_l2": "buffers between stages ÷ L2 cache",
}
"""Labels of features that models see as logarithms to base 2; people see the number itself."""

_PLAIN = {
    "op.steps": "operators in the kernel",
    "op.arguments": "operands",
    "op.rank": "axes of the result",
    "op.element_bytes": "bytes of an element",
    "op.innermost_whole": "vectors filled, innermost size",
    "op.in_whole": "vectors filled, input channels",
    "op.out_whole": "vectors filled, output channels",
    "op.batch": "batch",
    "op.kernel_height": "filter height",
    "op.kernel_width": "filter width",
    "op.stride": "stride",
    "op.dilation": "dilation",
    "op.padding": "rows and columns of padding",
    "op.border_share": "padding in the input",
    "op.halo": "times that an input is read",
    "op.threads_over_rows": "threads kept busy by rows",
    "layout.data_block": "channels per block of the input",
    "layout.result_block": "channels per block of the result",
    "schedule.parallel_extent": "independent pieces of work",
    "schedule.balance": "threads kept busy",
    "schedule.weight_tile_bytes": "weights of a piece of work",
    "schedule.workspace_bytes": "buffers between stages",
    "schedule.accumulators": "vectors of sums in registers",
    "schedule.loads_per_multiply_add": "vectors loaded per multiply-add",
    "schedule.loads_per_result": "vectors loaded per result",
    "schedule.waste": "results computed ÷ results needed",
    "schedule.row_length": "elements of a reduced row",
    "schedule.threads": "threads of a block",
    "schedule.registers": "registers of a thread",
    "schedule.shared_bytes": "shared memory of a block",
    "schedule.launches": "kernels started",
    "schedule.blocks_per_multiprocessor": "blocks that a multiprocessor holds",
    "schedule.most_blocks": "blocks of the busiest multiprocessor",
    "schedule.occupancy": "threads held ÷ threads that fit",
    "schedule.warps": "warps of a block",
    "schedule.waves": "waves of blocks",
    "schedule.tail": "part of the last wave that is empty",
    "schedule.instructions": "instructions of all warps",
    "schedule.shared_traffic_bytes": "bytes through shared memory",
    "schedule.cache_traffic_bytes": "bytes from and to the L2 cache",
    "schedule.memory_traffic_bytes": "bytes from and to device memory",
    "schedule.steps": "loads waited for one after the other",
    "schedule.conflicts": "times of an access to shared memory, over one without conflicts",
    "schedule.coalesced": "sectors per request",
    "schedule.sectors_per_request": "sectors per request",
    "schedule.sectors_per_store": "sectors per request that stores",
    "schedule.predicates": "comparisons before a load, or of both operands",
    "schedule.edge_predicates": "comparisons before results are written",
    "schedule.elements_per_thread": "results of a thread",
    "schedule.rows_per_block": "rows of a block",
    "schedule.lines_per_load": "lines touched by a load",
    "schedule.whole_vectors": "whole registers in a vector of the schedule",
    "schedule.beyond_vectors": "values beyond whole registers",
    "schedule.torn_pieces": "powers of two that these values are split into",
}

_NUMBERED = {
    "op.extent_": "result's axis {} from the innermost",
    "op.input_": "first operand's axis {} from the innermost",
    "op.kernel_": "window along axis {}",
    "op.strides_": "stride along axis {}",
    "op.padding_": "padding at side {}",
    "op.dilation_": "dilation along axis {}",
    "op.axis_": "source of the result's axis {} from the innermost",
    "op.steps_": "operators of the kernel that are {}",
    "implementation.": "implementation is {}",
    "knob.": "knob {}",
}
"""Labels of features that end in a number or a name."""

_UNITS = {"_bytes": shown.size, "_s": shown.seconds, "roofline time": shown.seconds}
"""How values are shown, by the end of the name."""


def feature_label(name: str) -> str:
    """What a feature is, in words; a name that is none of ours as it is."""
    numbered = (
        text.format(name.removeprefix(beginning))
        for beginning, text in _NUMBERED.items()
        if name.startswith(beginning)
    )
    return _LOGARITHMS.get(name) or _PLAIN.get(name) or next(numbered, name)


def feature_value(name: str, value: float | None) -> str:
    """A feature's value with its unit, never as a logarithm."""
    show = next((show for end, show in _UNITS.items() if name.endswith(end)), shown.number)
    if value is not None and (name in _LOGARITHMS or name.startswith(("op.extent_", "op.input_"))):
        value = 2.0**value
    return show(value)

"""The general fallback: every block parallel and vectorised, whatever it computes.

parallel (outer spatial loops)
  reduction loops
    innermost spatial loop                      # vectorised, or rows kept whole
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tilewright.compiler.lower.anchors import compute_anchor
from tilewright.compiler.lower.cuts import cut_deep_chains
from tilewright.compiler.lower.loops import PARALLEL_ELEMENTS, extents, reduction_split, spread
from tilewright.compiler.lower.program import Program
from tilewright.core.targets import Resources, Target


def lower(program: Program, target: Target, resources: Resources) -> Schedule:
    """Build and schedule the kernel."""
    cut_deep_chains(program, compute_anchor)
    schedule = program.schedule()
    schedule_blocks(schedule, target.lanes(program.workload.computed_in), resources)
    return schedule


def schedule_blocks(schedule: Schedule, lanes: int, resources: Resources) -> None:
    """Make every block below the root parallel, and vectorised by `lanes`, where its form allows
    it."""
    root = schedule.get_sblock("root")
    for block in schedule.get_child_blocks(root):
        kinds = {axis.iter_type for axis in schedule.get(block).iter_vars}
        loops = schedule.get_loops(block)
        plain_loops = len(loops) == len(schedule.get(block).iter_vars) and all(
            isinstance(schedule.get(loop).extent, (int, tirx.IntImm)) for loop in loops
        )
        if not loops or not plain_loops:
            continue
        if kinds == {tirx.IterVar.DataPar}:
            spread(schedule, block, lanes, resources.threads)
        elif kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
            _schedule_reduction(schedule, block, lanes, resources)


def _schedule_reduction(schedule: Schedule, block: Any, lanes: int, resources: Resources) -> None:
    spatial, reduction = reduction_split(schedule, block)
    work = prod(extents(schedule, spatial)) * prod(extents(schedule, reduction))
    outer, inner = spatial, []
    if spatial:
        last = int(schedule.get(spatial[-1]).extent)
        if last % lanes == 0 and last > lanes:
            chunk, vector = schedule.split(spatial[-1], [None, lanes])
            outer, inner = [*spatial[:-1], chunk], [vector]
        elif 4 <= last <= lanes:
            outer, inner = spatial[:-1], [spatial[-1]]
    if inner:
        schedule.reorder(*outer, *reduction, *inner)
        schedule.vectorize(inner[0])
    if outer and resources.threads > 1 and work >= PARALLEL_ELEMENTS:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    if reduction:
        schedule.decompose_reduction(block, reduction[0])

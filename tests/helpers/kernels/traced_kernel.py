"""Candidates of `metaschedule` with a trace made by hand, for the tests that need no search."""

from __future__ import annotations

from helpers.kernels.one_kernel import PLACEMENT
from tilewright.core.forms import Form
from tilewright.core.records import Candidate
from tilewright.graph.workload import Workload
from tilewright.kernels.metaschedule import NAME, TRACE
from tilewright.testing.implementations import plain


def traced(task: Workload, forms: tuple[Form, ...] = ()) -> Candidate:
    """The outer loops of the last block fused and parallel, the rest as it comes."""
    from tvm.s_tir import Schedule

    from tilewright.compiler.lower.generic import trace_start
    from tilewright.compiler.metaschedule.search import trace_text

    forms = forms or plain(task)
    schedule = Schedule(trace_start(task, forms, PLACEMENT.target, PLACEMENT.resources))
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[-1]
    schedule.parallel(schedule.fuse(*schedule.get_loops(block)[:2]))
    settings = ((TRACE, trace_text(schedule.trace)),)
    return Candidate(implementation=NAME, settings=settings, forms=forms)

"""Names of the plans that race, and the one with our default settings."""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.records import Placement
from tilewright.graph.plan_result import CallResult, PlanResult
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import with_candidates
from tilewright.store.known_candidates import defaults

TUNED, DEFAULT = "tuned", "default"
"""The best settings in the default layouts; our default settings in these. Others are what the
graph tuner found."""


def in_default_settings(tuned: PlanResult, placement: Placement, max_error: float) -> PlanResult:
    """The plan of `tuned` with default settings; their times where they were measured."""
    usual = defaults(tuned.plan.tasks, placement, max_error)
    known: dict[TaskKey, CallResult] = {}
    for key, candidate in tuned.plan.candidates.items():
        found = tuned.task(key)
        same = candidate == usual[key]
        known[key] = found if same else CallResult(alone=found.usual)
    plan = with_candidates(tuned.plan, usual)
    return replace(tuned, name=DEFAULT, plan=plan, calls={}).with_tasks(known)

"""Which candidates are known of each task, and which of them a network gets: our default, the best
known, or what shipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal

from tilewright.core.arguments import text_of
from tilewright.core.errors import UsageError, close_matches
from tilewright.core.records import Candidate, Measurement, Outcome, Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.plans import default_settings, with_candidates
from tilewright.kernels.spaces import too_inexact
from tilewright.models.prepared import PreparedNetwork
from tilewright.store.base import Store
from tilewright.store.interchange.lines import IMPORTED
from tilewright.store.shipped_plans import plan_of

SettingsName = Literal["default", "best", "shipped"]
SETTINGS: tuple[SettingsName, ...] = ("default", "best", "shipped")
MAX_ERROR = 1e-4
"""Allowed error of a network's outputs, relative to the largest value of each."""

_WRONG = "wrong result"


def checked_settings(name: str) -> SettingsName:
    """One of the known choices; raises UsageError otherwise."""
    named = text_of(name, "settings")
    if named not in SETTINGS:
        raise UsageError(f"unknown settings {named!r}", hint=close_matches(named, SETTINGS))
    return named


def defaults(
    tasks: Mapping[TaskKey, Task], placement: Placement, max_error: float = inf
) -> dict[TaskKey, Candidate]:
    """Our default settings for tasks, from facts and device alone, none with an error bound above
    `max_error` where a more exact one is to be had."""
    choose = default_settings(placement, max_error)
    return {key: choose(task.workload, task.forms) for key, task in tasks.items()}


def known_outcomes(task: Task, store: Store, placement: Placement) -> list[Outcome]:
    """What the store knows about a task in its layouts, oldest first."""
    return [
        outcome
        for outcome in store.outcomes(task.workload.key, placement.key)
        if outcome.candidate.forms == task.forms
    ]


def own(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes of our kernels, less those that another program measured."""
    return [outcome for outcome in outcomes if not outcome.kernel_hash.startswith(IMPORTED)]


def ranked(outcomes: list[Outcome]) -> list[Measurement]:
    """Measured candidates, fastest first, those with wrong results left out.

    A candidate that was measured again counts with its newest median: the second look is the one
    that was made to be believed.
    """
    wrong = {o.candidate for o in outcomes if not isinstance(o, Measurement) and o.kind == _WRONG}
    newest: dict[Candidate, Measurement] = {}
    for outcome in outcomes:
        if isinstance(outcome, Measurement) and outcome.candidate not in wrong:
            newest[outcome.candidate] = outcome
    return sorted(newest.values(), key=lambda measurement: measurement.latency_s)


def choose_plan(
    network: PreparedNetwork,
    store: Store,
    placement: Placement,
    settings: SettingsName,
    max_error: float = inf,
) -> NetworkPlan:
    """The plan of a network with these settings: with our defaults, with the best that is known of
    each task (the default where nothing is), or the one that shipped, whose layouts may be others.

    No candidate has an error bound above `max_error` where a more exact one is to be had, but in
    what shipped: its outputs were checked. Raises UsageError where nothing has shipped.
    """
    if settings == "best":
        return with_candidates(network.plan, best_known(network.tasks, store, placement, max_error))
    if settings == "default":
        return with_candidates(network.plan, defaults(network.tasks, placement, max_error))
    shipped = store.shipped(network.key, placement.key)
    if shipped is None:
        raise UsageError(
            f"nothing has shipped for {network.model.name} on this device",
            hint="Run `tilewright optimize` first, or use --settings best.",
        )
    return plan_of(shipped, network, placement)


def best_known(
    tasks: Mapping[TaskKey, Task],
    store: Store,
    placement: Placement,
    max_error: float = inf,
) -> dict[TaskKey, Candidate]:
    """The fastest that is known of each task, our default settings where nothing is."""
    chosen = defaults(tasks, placement, max_error)
    for key, task in tasks.items():
        out = too_inexact(task.workload, task.forms, placement, max_error)
        for found in ranked(own(known_outcomes(task, store, placement))):
            if found.candidate.implementation not in out:
                chosen[key] = found.candidate
                break
    return chosen

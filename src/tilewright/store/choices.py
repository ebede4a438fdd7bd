"""Which candidate each task gets: our default, the best known, or what shipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal

from tilewright.core.arguments import text_of
from tilewright.core.errors import UsageError, close_matches
from tilewright.core.forms import form_texts
from tilewright.core.protocols import MeasurementStore
from tilewright.core.records import Candidate, LayoutPlan, Measurement, Outcome, Placement
from tilewright.graph.tasks import Task, TaskKey
from tilewright.kernels.spaces import default_candidate, too_inexact
from tilewright.models.prepared import PreparedNetwork
from tilewright.store.interchange.lines import IMPORTED

SettingsName = Literal["default", "best", "shipped"]
SETTINGS: tuple[SettingsName, ...] = ("default", "best", "shipped")
MAX_ERROR = 1e-4
"""Allowed error of a network's outputs, relative to the largest value of each."""

_WRONG = "wrong result"


def checked_settings(name: str) -> SettingsName:
    """One of the known choices; raises UsageError otherwise."""
    for known in SETTINGS:
        if name == known:
            return known
    named = text_of(name, "settings")
    raise UsageError(f"unknown settings {named!r}", hint=close_matches(named, SETTINGS))


def defaults(
    network: PreparedNetwork, placement: Placement, max_error: float = inf
) -> dict[TaskKey, Candidate]:
    """Our default settings, from facts and device alone, none with an error bound above
    `max_error` where a more exact one is to be had."""
    return {
        key: default_candidate(task.workload, task.forms, placement, max_error)[0]
        for key, task in network.tasks.items()
    }


def known_outcomes(task: Task, store: MeasurementStore, placement: Placement) -> list[Outcome]:
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


def shipped_plan(
    network: PreparedNetwork, store: MeasurementStore, placement: Placement, settings: SettingsName
) -> LayoutPlan:
    """The layouts that go with `settings`: what shipped may differ from the default ones."""
    shipment = store.shipment(network.key, placement.key) if settings == "shipped" else None
    return LayoutPlan() if shipment is None else shipment.plan


def choose(
    network: PreparedNetwork,
    store: MeasurementStore,
    placement: Placement,
    settings: SettingsName,
    max_error: float = inf,
) -> dict[TaskKey, Candidate]:
    """A candidate for every task. Where nothing is known, the default.

    None has an error bound above `max_error` where a more exact one is to be had, but for what
    shipped: its outputs were checked.
    """
    chosen = defaults(network, placement, max_error)
    if settings == "default":
        return chosen
    shipped: Mapping[str, Candidate] = {}
    if settings == "shipped":
        shipment = store.shipment(network.key, placement.key)
        if shipment is None:
            raise UsageError(
                f"nothing has shipped for {network.model.name} on this device",
                hint="Run `tilewright optimize` first, or use --settings best.",
            )
        shipped = shipment.assignment
    for key, task in network.tasks.items():
        if settings == "shipped":
            chosen[key] = shipped.get(shipping_key(key), chosen[key])
            continue
        best = ranked(own(known_outcomes(task, store, placement)))
        out = too_inexact(task.workload, task.forms, placement, max_error)
        exact = [found for found in best if found.candidate.implementation not in out]
        if exact:
            chosen[key] = exact[0].candidate
    return chosen


def shipping_key(key: TaskKey) -> str:
    """A task key as text, for the assignment that ships."""
    return f"{key[0]}@{','.join(form_texts(key[1]))}"

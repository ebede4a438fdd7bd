"""Which candidates are known of each task, and which of them a network gets: our default, the best
known, or what shipped, whose plan is read here.

Up to schema version 5 a shipment had the candidate of each task, by `shipping_key`, and the forms
that were not the default ones. Such a row is carried over as a plan of its own kind, from which the
plan follows once the network is at hand:

    {"assignment": {TASK: CANDIDATE}, "layouts": {TENSOR: FORM}, "ports": {CALL: [FORM, …]}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import msgspec

from tilewright.core.arguments import Error, error_of, text_of
from tilewright.core.codec import FILE_NAMES, convert
from tilewright.core.errors import StoreError, UsageError, close_matches
from tilewright.core.forms import Form, form_texts
from tilewright.core.records import (
    Candidate,
    Measurement,
    Outcome,
    Placement,
    Precision,
    ShippedPlan,
)
from tilewright.graph.arrange import arrange
from tilewright.graph.plan import NetworkPlan, PlannedCall, lane_of
from tilewright.graph.plan_fields import read_plan
from tilewright.graph.tasks import Task, TaskKey
from tilewright.graph.workload import Workload
from tilewright.kernels.base import MIXED
from tilewright.kernels.plans import default_settings, in_sequence, with_candidates
from tilewright.kernels.registry import is_allowed
from tilewright.kernels.spaces import MAX_ERRORS, too_inexact
from tilewright.kernels.stored_settings import refusals
from tilewright.models.loaded import PreparedNetwork
from tilewright.store.base import Store
from tilewright.store.interchange.lines import IMPORTED

SettingsName = Literal["default", "best", "shipped"]
SETTINGS: tuple[SettingsName, ...] = ("default", "best", "shipped")

_WRONG = "wrong result"
_TYPES_FIRST = (
    "Run `tilewright optimize MODEL --precision auto` first: it chooses the type of each tensor. "
    "Give its folder where some are on codes."
)
_Some = TypeVar("_Some", bound=Outcome | PlannedCall)


def allowed_error(given: Error | None, precision: Precision = "float32") -> float:
    """What is given, checked and as a relative error, or the default of a precision. Raises
    UsageError."""
    return MAX_ERRORS[precision] if given is None else error_of(given)


def checked_settings(name: str) -> SettingsName:
    """One of the known choices; raises UsageError otherwise."""
    named = text_of(name, "settings")
    if named not in SETTINGS:
        raise UsageError(f"unknown settings {named!r}", hint=close_matches(named, SETTINGS))
    return named


def defaults(
    tasks: Mapping[TaskKey, Task], placement: Placement, max_error: float | None = None
) -> dict[TaskKey, Candidate]:
    """Our default settings for tasks, from facts and device alone, none with an error bound above
    `max_error` where a more exact one is to be had."""
    choose = default_settings(placement, max_error)
    return {key: choose(task.workload, task.forms) for key, task in tasks.items()}


def known_outcomes(task: Task, store: Store, placement: Placement) -> list[Outcome]:
    """What the store knows about a task in its layouts, oldest first; of libraries only where they
    are allowed."""
    found = allowed_outcomes(task.workload, store, placement)
    return [outcome for outcome in found if outcome.candidate.forms == task.forms]


def allowed_outcomes(workload: Workload, store: Store, placement: Placement) -> list[Outcome]:
    """The same in any layouts; without settings that today's implementations do not take."""
    outcomes = store.outcomes(workload.key, placement.key)
    allowed = [o for o in outcomes if is_allowed(o.candidate, workload, placement)]
    return usable(allowed, workload, placement)


def usable(found: Sequence[_Some], workload: Workload, placement: Placement) -> list[_Some]:
    """What of the outcomes or calls of a workload, measured anywhere, has settings that today's
    implementations take at a placement."""
    asked = [one.candidate for one in found]
    refused = refusals(workload, asked, placement.target, placement.resources)
    return [one for one, why in zip(found, refused, strict=True) if not why]


def own(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes of our kernels, less those that another program measured."""
    return [outcome for outcome in outcomes if not outcome.kernel_hash.startswith(IMPORTED)]


def ranked(outcomes: Sequence[Outcome]) -> list[Measurement]:
    """Measured candidates, fastest first, those with wrong results left out.

    A candidate that was measured again counts with its newest median: the second look is the one
    that was made to be believed.
    """
    wrong = {o.candidate for o in outcomes if not isinstance(o, Measurement) and o.kind == _WRONG}
    newest = {
        outcome.candidate: outcome
        for outcome in outcomes
        if isinstance(outcome, Measurement) and outcome.candidate not in wrong
    }
    return sorted(newest.values(), key=lambda measurement: measurement.latency_s)


def choose_plan(
    network: PreparedNetwork,
    store: Store,
    placement: Placement,
    settings: SettingsName,
    max_error: float | None = None,
) -> NetworkPlan:
    """The plan of a network with these settings: with our defaults, with the best that is known of
    each task (the default where nothing is), or the one that shipped, whose layouts may be others.

    No candidate has an error bound above `max_error` where a more exact one is to be had, but in
    what shipped: its outputs were checked. Where each tensor has a type of its own, it is always
    what shipped. Raises UsageError where nothing has shipped, or in
    settings that implementations do not take any more.
    """
    mixed = network.precision == MIXED
    if mixed:
        settings = "shipped"
    if settings == "best":
        return with_candidates(network.plan, best_known(network.tasks, store, placement, max_error))
    if settings == "default":
        return with_candidates(network.plan, defaults(network.tasks, placement, max_error))
    shipped = store.shipped(network.key, placement.key)
    if shipped is None:
        raise UsageError(
            f"nothing has shipped for {network.model.name} on this device",
            hint=_TYPES_FIRST
            if mixed
            else "Run `tilewright optimize` first, or use --settings best.",
        )
    plan = plan_of(shipped, network, placement)
    for call in plan.calls:
        if not usable([call], call.workload, placement):
            raise UsageError(
                f"what shipped for {network.model.name} was chosen by another version of "
                f"tilewright: {call.candidate.implementation} does not take these settings now",
                hint="Run `tilewright optimize` again, or use --settings best.",
            )
    return plan


def best_known(
    tasks: Mapping[TaskKey, Task],
    store: Store,
    placement: Placement,
    max_error: float | None = None,
) -> dict[TaskKey, Candidate]:
    """The fastest that is known of each task, our default settings where nothing is."""
    chosen = defaults(tasks, placement, max_error)
    for key, task in tasks.items():
        known = fastest_of_each(task.workload, task.forms, store, placement, max_error)
        chosen[key] = next(iter(known), chosen[key])
    return chosen


def fastest_of_each(
    workload: Workload,
    forms: tuple[Form, ...],
    store: Store,
    placement: Placement,
    max_error: float | None = None,
) -> list[Candidate]:
    """The fastest that was measured of each implementation that computes a workload in these forms
    with an error bound within `max_error`; the fastest of them first."""
    out = too_inexact(workload, forms, placement, max_error)
    known = own(allowed_outcomes(workload, store, placement))
    found: dict[str, Candidate] = {}
    for each in ranked([one for one in known if one.candidate.forms == forms]):
        if each.candidate.implementation not in out:
            found.setdefault(each.candidate.implementation, each.candidate)
    return list(found.values())


class PlanOfBefore(msgspec.Struct, frozen=True, kw_only=True, rename=FILE_NAMES):
    """The candidate of each task; the forms of tensors where they were not the default ones, and
    those in which calls, by name, wanted their arguments."""

    assignment: dict[str, Candidate]
    forms: dict[str, Form] = msgspec.field(default_factory=dict[str, Form])
    ports: dict[str, tuple[Form, ...]] = msgspec.field(default_factory=dict[str, tuple[Form, ...]])

    def planned(self, network: PreparedNetwork, placement: Placement) -> NetworkPlan:
        """The plan of a network; tasks that are not named get their default settings."""
        usual = default_settings(placement)
        arranged = arrange(network.fused, {**network.forms, **self.forms}, self.ports)
        chosen = {
            key: self.assignment.get(shipping_key(key)) or usual(task.workload, task.forms)
            for key, task in arranged.tasks.items()
        }
        return in_sequence(arranged, lane_of(placement), chosen)


def shipping_key(key: TaskKey) -> str:
    """A task key as text."""
    return f"{key[0]}@{','.join(form_texts(key[1]))}"


def read_shipped(fields: Mapping[str, Any]) -> NetworkPlan | PlanOfBefore:
    """What is written in `ShippedPlan.plan`. Raises ValueError where that is no plan."""
    return read_plan(fields) if "calls" in fields else convert(fields, PlanOfBefore)


def plan_of(shipped: ShippedPlan, network: PreparedNetwork, placement: Placement) -> NetworkPlan:
    """The plan that shipped for a network. Raises StoreError for one that cannot be read."""
    found = _understood(shipped)
    return found.planned(network, placement) if isinstance(found, PlanOfBefore) else found


def candidates_of(shipped: ShippedPlan) -> Mapping[str, Candidate]:
    """What computed each task, by `shipping_key`. Raises StoreError for a plan that cannot be
    read."""
    found = _understood(shipped)
    if isinstance(found, PlanOfBefore):
        return found.assignment
    return {shipping_key(key): candidate for key, candidate in found.candidates.items()}


def carried_over(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a shipment as exports write it today, from those of any schema version.

    Raises ValueError for a plan that cannot be read.
    """
    known = dict(fields)
    if "assignment" in known:
        known["plan"] = plan_of_before(known.pop("assignment"), known.pop("plan", None))
        known.pop("artifact_hash", None)
    if not isinstance(known.get("plan"), dict):
        raise ValueError("a shipment needs a plan")
    read_shipped(known["plan"])
    return known


def plan_of_before(assignment: object, layouts: object) -> dict[str, Any]:
    """Candidates and forms of a shipment of before, as one plan; it is written in one way only."""
    named = cast("dict[str, object]", layouts) if isinstance(layouts, dict) else {}
    return {"assignment": assignment, **{name: forms for name, forms in named.items() if forms}}


def _understood(shipped: ShippedPlan) -> NetworkPlan | PlanOfBefore:
    try:
        return read_shipped(shipped.plan)
    except ValueError as error:
        raise StoreError(
            f"the plan that shipped for {shipped.model} cannot be read: {error}",
            hint="Run `tilewright optimize` again, or use --settings best.",
        ) from error

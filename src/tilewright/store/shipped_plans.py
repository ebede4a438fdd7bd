"""Plans that shipped, as networks want them; and what databases had of them before.

Up to schema version 5 a shipment had the candidate of each task, by `shipping_key`, and the forms
that were not the default ones. Such a row is carried over as a plan of its own kind, from which the
plan follows once the network is at hand:

    {"assignment": {TASK: CANDIDATE}, "layouts": {TENSOR: FORM}, "ports": {CALL: [FORM, …]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from tilewright.core.codec import FILE_NAMES, convert
from tilewright.core.errors import StoreError
from tilewright.core.forms import Form, form_texts
from tilewright.core.records import Candidate, Placement, ShippedPlan
from tilewright.graph.arrange import arrange
from tilewright.graph.plan import NetworkPlan, lane_of
from tilewright.graph.plan_fields import read_plan
from tilewright.graph.tasks import TaskKey
from tilewright.kernels.plans import default_settings, in_sequence
from tilewright.models.prepared import PreparedNetwork


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
    if "calls" in fields:
        return read_plan(fields)
    return convert(fields, PlanOfBefore)


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

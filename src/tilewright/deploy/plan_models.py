"""The models of a plan's networks, with the options that it was made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from msgspec import structs

from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.records import Candidate, Placement
from tilewright.deploy.manifest import Port
from tilewright.deploy.publishing import graph_inputs
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.plan import NetworkPlan
from tilewright.kernels.plans import with_each
from tilewright.kernels.stored_settings import refusals
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import LoadedModel
from tilewright.plan.planning_data import in_single_precision
from tilewright.plan.scheduling.parts import ScheduledCall
from tilewright.plan.scheduling.plan_file import Plan, PlannedKernel, PlannedNetwork, read_plan
from tilewright.store.known_candidates import allowed_error


def options_of(named: PlannedNetwork) -> ModelOptions:
    """The options of a plan's network. Raises ModelError for what are none, and for a precision in
    which no plans are made."""
    try:
        return in_single_precision(ModelOptions(**named.options))
    except (TypeError, UsageError) as error:
        raise ModelError(f"the plan has no options of a model: {error}") from error


def allowed_in(named: PlannedNetwork) -> float:
    """The relative error that a plan's network may have. Raises ModelError for what is none."""
    try:
        return allowed_error(named.max_error)
    except UsageError as error:
        raise ModelError(f"the plan has no allowed error: {error}") from error


@dataclass(frozen=True, kw_only=True)
class LoadedPlan(Plan):
    """A plan with its networks' models, which are read once, by the networks' names."""

    models: Mapping[str, LoadedModel]

    @property
    def inputs(self) -> list[Port]:
        """The inputs of the networks, of several with the name of each before those of its own,
        "resnet18/input"."""
        before = {name: f"{name}/" * (len(self.models) > 1) for name in self.models}
        return [
            structs.replace(port, name=before[name] + port.name)
            for name, model in self.models.items()
            for port in graph_inputs(model.graph)
        ]


def loaded_plan(place: Path) -> LoadedPlan:
    """The plan in a file or folder, and its models; nothing is compiled. Raises ModelError for what
    is no plan, and for models that cannot be read."""
    plan = read_plan(place)
    own = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return LoadedPlan(**own, models={each.name: model_of(plan, each) for each in plan.networks})


def model_of(plan: Plan, named: PlannedNetwork) -> LoadedModel:
    """The model of a plan's network, read unless it is there."""
    if isinstance(plan, LoadedPlan):
        return plan.models[named.name]
    return loading.load(named.model, options_of(named))


def require_planned(
    named: PlannedNetwork, planned: Iterable[ScheduledCall], network: FusedNetwork, prefix: str = ""
) -> None:
    """Raise ModelError where a network is not the one of which these calls were planned, whose
    names begin with `prefix`."""
    known = {call.name: call.workload.key for call in network.calls}
    for call in planned:
        name = call.name.removeprefix(prefix)
        wrong = ""
        if name not in known:
            wrong = f"{named.model} has no call {name!r}"
        elif call.task and not call.task.startswith(known[name]):
            wrong = f"the call {name!r} is another one"
        if wrong:
            raise ModelError(f"the plan is of another network: {wrong}", hint="Plan it again.")


def with_planned_kernels(
    plan: NetworkPlan, kernels: Mapping[str, PlannedKernel], placement: Placement
) -> NetworkPlan:
    """A network's plan with the kernels that a plan chose for some of its calls, by name. Raises
    ModelError where an implementation does not take these settings any more, or not in the forms
    that the call has now."""
    calls = {call.name: call for call in plan.calls}
    chosen: dict[str, Candidate] = {}
    for name, kernel in kernels.items():
        if name in calls:
            own, settings = calls[name], tuple(kernel.settings.items())
            forms = own.candidate.forms
            candidate = Candidate(
                implementation=kernel.implementation, settings=settings, forms=forms
            )
            (why,) = refusals(own.workload, [candidate], placement.target, placement.resources)
            if why:
                raise ModelError(
                    f"the plan's kernel of {name!r} cannot be compiled here: {why}",
                    hint="Plan it again.",
                )
            chosen[name] = candidate
    return with_each(plan, chosen)


def require_machine(plan: Plan, name: str, placement: Placement) -> None:
    """Raise TargetError where a device of a plan is now of another kind than it was planned for."""
    said = {each.name: each.machine for each in plan.devices}
    if said.get(name, placement.device.class_key) != placement.device.class_key:
        raise TargetError(
            f"the plan is for a machine {said[name]}, and {name!r} is a "
            f"{placement.device.class_key}",
            hint="Plan it again.",
        )

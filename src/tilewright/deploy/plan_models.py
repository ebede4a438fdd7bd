"""The models of a plan's networks, with the options that it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from msgspec import structs

from tilewright.core.errors import ModelError, UsageError
from tilewright.deploy.manifest import Port
from tilewright.deploy.publishing import graph_inputs
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import LoadedModel
from tilewright.plan.planning_data import in_single_precision
from tilewright.plan.scheduling.plan_file import Plan, PlannedNetwork, read_plan
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

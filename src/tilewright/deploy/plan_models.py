"""The networks of a plan, from the models or artifacts that it was made of, in its precision.

source_of("folder", options)                      an artifact, or a model with its options
loaded_plan(folder).sources                       those of a plan, by the networks' names
opened(named, source, "llvm", placement, store)   one cut into calls for a device, with its kernels
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from msgspec import structs

from tilewright.core.errors import ModelError, TargetError, UsageError
from tilewright.core.forms import form_texts
from tilewright.core.records import Candidate, Placement
from tilewright.deploy.manifest import Port, is_artifact
from tilewright.deploy.opening import OpenedArtifact, opened_artifact
from tilewright.deploy.ports import graph_inputs
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.siblings import Group
from tilewright.kernels.plans import with_each
from tilewright.kernels.stored_settings import refusals
from tilewright.measure.targeting import allowing_beside
from tilewright.models import ModelOptions, loading
from tilewright.models.loaded import PreparedNetwork
from tilewright.models.source import is_model_file
from tilewright.plan.scheduling.parts import ScheduledCall
from tilewright.plan.scheduling.plan_file import (
    Plan,
    PlannedKernel,
    PlannedNetwork,
    forms_hash,
    read_plan,
)
from tilewright.plan.sources import ModelSource, NetworkSource
from tilewright.store.base import Store
from tilewright.store.known_candidates import (
    SettingsName,
    allowed_error,
    checked_settings,
    choose_plan,
)


@dataclass(frozen=True, slots=True)
class ArtifactSource:
    """The folder of a compiled network: its kernels, and the types of its tensors, are those that
    were compiled, on devices of the kind that it was compiled for; on others beside these kernels
    are chosen, and what it has on codes stays on them. See `NetworkSource`."""

    artifact: OpenedArtifact

    @property
    def options(self) -> ModelOptions:
        """See `NetworkSource.options`."""
        return self.artifact.manifest.source.options

    def settings(self, asked: SettingsName, placement: Placement) -> SettingsName:
        """See `NetworkSource.settings`: as it shipped, whatever is asked for; elsewhere nothing
        did."""
        return "shipped" if self.artifact.is_for(placement) else asked

    def require(self, placement: Placement) -> None:
        """See `NetworkSource.require`."""
        self.artifact.allowed(placement)
        self.artifact.require_for(placement)

    def allowed(self, placement: Placement) -> Placement:
        """See `NetworkSource.allowed`."""
        if self.artifact.is_for(placement):
            return self.artifact.allowed(placement)
        return allowing_beside(placement, self.options)

    def prepared(self, placement: Placement) -> PreparedNetwork:
        """See `NetworkSource.prepared`. Raises ModelError where its model is another one by now."""
        if self.artifact.is_for(placement):
            return self.artifact.network(placement)
        return self.artifact.network_for(self.allowed(placement))

    def plan(
        self,
        network: PreparedNetwork,
        store: Store,
        placement: Placement,
        settings: SettingsName,
        max_error: float | None,
    ) -> NetworkPlan:
        """See `NetworkSource.plan`."""
        if self.artifact.is_for(placement):
            return self.artifact.plan(network, placement)
        return choose_plan(network, store, placement, settings, max_error)


def source_of(argument: str, options: ModelOptions) -> NetworkSource:
    """The network of a MODEL argument, or of an artifact's folder, which has a precision of its
    own. Raises as loading a model and `opened_artifact` do."""
    artifact = opened_artifact(argument, options)
    if artifact is not None:
        return ArtifactSource(artifact)
    return ModelSource(loading.load(argument, options), options)


def is_file(argument: str) -> bool:
    """Whether a MODEL argument is a path, to a model or to an artifact."""
    return is_model_file(argument) or is_artifact(argument)


def options_of(named: PlannedNetwork) -> ModelOptions:
    """The options of a plan's network. Raises ModelError for what are none, and where they are of
    another precision than the plan."""
    try:
        options = ModelOptions(**named.options)
    except (TypeError, UsageError) as error:
        raise ModelError(f"the plan has no options of a model: {error}") from error
    if options.precision not in (named.precision, ModelOptions().precision):
        raise _other_precision(named, options.precision)
    return options


def _other_precision(named: PlannedNetwork, now: str) -> ModelError:
    return ModelError(
        f"the plan of {named.name!r} is for {named.precision}, and the network is now in {now}",
        hint="Plan it again.",
    )


def allowed_in(named: PlannedNetwork) -> float:
    """The relative error that a plan's network may have. Raises ModelError for what is none."""
    try:
        return allowed_error(named.max_error, named.precision)
    except UsageError as error:
        raise ModelError(f"the plan has no allowed error: {error}") from error


@dataclass(frozen=True, kw_only=True)
class LoadedPlan(Plan):
    """A plan with its networks' sources, which are read once, by the networks' names."""

    sources: Mapping[str, NetworkSource]

    @property
    def inputs(self) -> list[Port]:
        """The inputs of the networks, of several with the name of each before those of its own,
        "resnet18/input"."""
        before = {name: f"{name}/" * (len(self.sources) > 1) for name in self.sources}
        return [
            structs.replace(port, name=before[name] + port.name)
            for name, source in self.sources.items()
            for port in _inputs_of(source)
        ]


def _inputs_of(source: NetworkSource) -> Sequence[Port]:
    if isinstance(source, ArtifactSource):
        return source.artifact.manifest.inputs
    assert isinstance(source, ModelSource)
    return graph_inputs(source.model.graph)


def loaded_plan(place: Path) -> LoadedPlan:
    """The plan in a file or folder, and its models; nothing is compiled. Raises ModelError for what
    is no plan, for models that cannot be read, and for those in another precision by now."""
    plan = read_plan(place)
    own = {each.name: getattr(plan, each.name) for each in fields(plan)}
    sources = {each.name: planned_source(plan, each) for each in plan.networks}
    return LoadedPlan(**own, sources=sources)


def planned_source(plan: Plan, named: PlannedNetwork) -> NetworkSource:
    """The source of a plan's network, read unless it is there. Raises ModelError where that is in
    another precision than the plan, and as `source_of` and `merging`."""
    if isinstance(plan, LoadedPlan):
        return plan.sources[named.name]
    source = source_of(named.model, options_of(named))
    if source.options.precision != named.precision:
        raise _other_precision(named, source.options.precision)
    return merging(source, named.merges)


def merging(source: NetworkSource, merges: Sequence[Group]) -> NetworkSource:
    """A network with the calls of each of `merges` as one, and no others. Raises ModelError for an
    artifact that is to have some: its kernels are those that were compiled."""
    if isinstance(source, ModelSource):
        return replace(source, merges=tuple(merges))
    if merges:
        raise ModelError("the calls of an artifact cannot be merged", hint="Plan its MODEL.")
    return source


def opened(
    named: PlannedNetwork,
    source: NetworkSource,
    device: str,
    placement: Placement,
    store: Store,
) -> tuple[PreparedNetwork, NetworkPlan]:
    """A plan's network cut into calls for a device of it, with the kernels that these have one
    after the other on all cores.

    Raises ModelError where its tensors are in other types than when it was planned, TargetError for
    a device that cannot be beside others in its precision, and as `NetworkSource.plan`.
    """
    placement = source.allowed(placement)
    settings = source.settings(checked_settings(named.settings), placement)
    network = source.prepared(placement)
    plan = source.plan(network, store, placement, settings, allowed_in(named))
    known = named.forms.get(device)
    if known and known != forms_hash(forms_of(network.fused, plan)):
        raise ModelError(
            f"the plan of {named.name!r} is for other types of its tensors than are chosen now",
            hint="Plan it again.",
        )
    return network, plan


def forms_of(fused: FusedNetwork, plan: NetworkPlan) -> dict[str, tuple[str, ...]]:
    """The forms of operands and results of a network's own calls, by the calls' names."""
    own = {call.name for call in fused.calls}
    return {c.name: form_texts(c.candidate.forms) for c in plan.calls if c.name in own}


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

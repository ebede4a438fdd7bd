"""Where a network that is planned comes from, and so in which precision it is.

ModelSource(loaded, options)      kernels are chosen, by settings, in the options' precision
an artifact (deploy.plan_models)  kernels and types of tensors are those that it was compiled in
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tilewright.core.errors import TargetError
from tilewright.core.records import Placement, Precision
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.siblings import Group
from tilewright.kernels.base import MIXED
from tilewright.measure.targeting import allowing, allowing_beside
from tilewright.models import LoadedModel, ModelOptions
from tilewright.models.loaded import ON_CODES, PreparedNetwork
from tilewright.plan.preparation import prepare_loaded
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan


class NetworkSource(Protocol):
    """A network that can be cut into calls for any device."""

    @property
    def options(self) -> ModelOptions:
        """How it is read; `precision` says in which types it is computed."""
        ...

    def settings(self, asked: SettingsName, placement: Placement) -> SettingsName:
        """Which settings its kernels have on a device that `allowed` gave, where these are asked
        for: what is given has its own."""
        ...

    def require(self, placement: Placement) -> None:
        """Raise TargetError for a device that cannot compute the network as it is: in its
        precision, with the kernels that it has; with what can be done about that."""
        ...

    def allowed(self, placement: Placement) -> Placement:
        """A device of a plan with what its options allow there: its `precision` is the network's,
        or single where no device of its kind computes in that
        (`measure.targeting.allowing_beside`). Raises TargetError for a device that cannot be
        beside others so, with what can be done about that; and as `allowing_beside`."""
        ...

    def prepared(self, placement: Placement) -> PreparedNetwork:
        """Its calls for a device. Raises ModelError for calls that nothing computes there,
        TargetError where the device does not compute in the network's precision."""
        ...

    def plan(
        self,
        network: PreparedNetwork,
        store: Store,
        placement: Placement,
        settings: SettingsName,
        max_error: float | None,
    ) -> NetworkPlan:
        """The kernels of its calls one after the other, as `choose_plan`, and raises as that."""
        ...


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that is loaded, with its options; see `NetworkSource`. Where each tensor has a type
    of its own, these are the ones that shipped. The calls of each of `merges` are one."""

    model: LoadedModel
    options: ModelOptions
    merges: tuple[Group, ...] = ()

    def settings(self, asked: SettingsName, placement: Placement) -> SettingsName:
        """See `NetworkSource.settings`."""
        return "shipped" if placement.precision == MIXED else asked

    def require(self, placement: Placement) -> None:
        """See `NetworkSource.require`: what is on codes is computed wherever these have kernels."""
        if self.options.precision != ON_CODES:
            allowing(placement, self.options)

    def allowed(self, placement: Placement) -> Placement:
        """See `NetworkSource.allowed`."""
        return allowing_beside(placement, self.options)

    def prepared(self, placement: Placement) -> PreparedNetwork:
        """See `NetworkSource.prepared`."""
        placement = self.allowed(placement)
        return prepare_loaded(self.model, self.options, placement, self.merges)

    def plan(
        self,
        network: PreparedNetwork,
        store: Store,
        placement: Placement,
        settings: SettingsName,
        max_error: float | None,
    ) -> NetworkPlan:
        """See `NetworkSource.plan`."""
        return choose_plan(network, store, placement, settings, max_error)


def precision_on(source: NetworkSource, placement: Placement) -> Precision:
    """The precision in which a device of a plan, as `allowed` has it, computes a network: one that
    is on codes is so on every device."""
    own = source.options.precision
    return own if own == ON_CODES else placement.precision


def allowed_on(source: NetworkSource, placements: Mapping[str, Placement]) -> dict[str, Placement]:
    """The devices of a plan, by their names, as a network's `allowed` has them. Raises TargetError
    where none of them computes the network as it is, and as that."""
    found = {name: source.allowed(at) for name, at in placements.items()}
    refused: list[TargetError] = []
    for at in placements.values():
        try:
            source.require(at)
        except TargetError as error:
            refused.append(error)
    if len(refused) == len(placements):
        raise refused[0]
    return found


def with_fewest_calls(networks: Iterable[PreparedNetwork]) -> PreparedNetwork:
    """Of a network as devices of a plan have it that by which it is planned: where several calls on
    one are one call on another, the latter. What the others have no call of that name for is not
    computed there."""
    return min(networks, key=lambda network: len(network.fused.calls))

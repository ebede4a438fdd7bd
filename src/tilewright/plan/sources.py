"""Where a network that is planned comes from, and so in which precision it is.

ModelSource(loaded, options)      kernels are chosen, by settings, in the options' precision
an artifact (deploy.plan_models)  kernels and types of tensors are those that it was compiled in
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilewright.core.records import Placement
from tilewright.graph.plan import NetworkPlan
from tilewright.graph.siblings import Group
from tilewright.kernels.base import MIXED
from tilewright.measure.targeting import allowing
from tilewright.models import LoadedModel, ModelOptions
from tilewright.models.loaded import PreparedNetwork
from tilewright.plan.preparation import prepare_loaded
from tilewright.store.base import Store
from tilewright.store.known_candidates import SettingsName, choose_plan


class NetworkSource(Protocol):
    """A network that can be cut into calls for any device."""

    @property
    def options(self) -> ModelOptions:
        """How it is read; `precision` says in which types it is computed."""
        ...

    def settings(self, asked: SettingsName) -> SettingsName:
        """Which settings its kernels have where these are asked for: what is given has its own."""
        ...

    def allowed(self, placement: Placement) -> Placement:
        """A device with what its options allow there (`measure.targeting.allowing`). Raises
        TargetError where the device does not compute in the network's precision, with what can be
        done about that; and as `allowing`."""
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

    def settings(self, asked: SettingsName) -> SettingsName:
        """See `NetworkSource.settings`."""
        return "shipped" if self.options.precision == MIXED else asked

    def allowed(self, placement: Placement) -> Placement:
        """See `NetworkSource.allowed`."""
        return allowing(placement, self.options)

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

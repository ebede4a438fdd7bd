"""The networks of a plan as a server knows them. All tensors that may go from part to part have a
place of their own in a slot, however the networks are cut: a request can go another way from its
beginning, and nothing has to be moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.deploy.compiled_parts import Parts
from tilewright.deploy.ports import input_ports, output_ports
from tilewright.graph.network import Array
from tilewright.models.loaded import PreparedNetwork
from tilewright.serving.served import ServedNetwork
from tilewright.serving.slots import Place, SlotPlan


class PlannedNetworks:
    """The networks of a plan. One that is in it several times, with equal options, is served under
    its first name, and each of the others is a replica, which computes some of the requests; unless
    they are not `grouped`."""

    def __init__(self, parts: Parts, *, grouped: bool = True) -> None:
        self._group: dict[str, str] = {}
        first: dict[str, str] = {}
        for named in parts.plan.networks:
            key = str((named.model, sorted(named.options.items()), named.settings))
            self._group[named.name] = first.setdefault(key, named.name) if grouped else named.name
        self._networks = {name: parts.network(name) for name in parts.names}
        self._places = {name: _places(each) for name, each in self._networks.items()}
        self._served = {
            name: ServedNetwork(
                name=name,
                inputs=input_ports(network),
                outputs=output_ports(network),
                slot_bytes=_whole(network)[1].size_bytes,
            )
            for name, network in self._networks.items()
        }

    @property
    def groups(self) -> tuple[ServedNetwork, ...]:
        """What requests can be for."""
        return tuple(self._served[name] for name in dict.fromkeys(self._group.values()))

    def replicas(self, name: str) -> list[str]:
        """The networks of the plan that compute requests of a name."""
        return [each for each, group in self._group.items() if group == name]

    def group_of(self, name: str) -> str:
        """The name under which a network of the plan is served."""
        return self._group[name]

    def served(self, name: str) -> ServedNetwork:
        """A network of the plan with its ports."""
        return self._served[name]

    def slots_of(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> SlotPlan:
        """Where tensors of a network that a part reads and writes lie in a slot."""
        places = self._places[name]
        read = tuple(place for place in (places[t] for t in inputs) if place is not None)
        return SlotPlan(
            inputs=read,
            outputs=tuple(places[t] for t in outputs),
            size_bytes=self._served[name].slot_bytes,
        )

    def others(self, name: str, arrays: Mapping[str, Array]) -> dict[int, Array]:
        """What has no place in a slot, by the number of the output that it is."""
        outputs = self._networks[name].graph.outputs
        return {outputs.index(tensor): array for tensor, array in arrays.items()}


def _whole(network: PreparedNetwork) -> tuple[list[str], SlotPlan]:
    """The names of all tensors, and where they lie: inputs and outputs first, as a server has
    them."""
    graph = network.graph
    ends = dict.fromkeys((*graph.inputs, *graph.outputs))
    between = [c.output for c in network.fused.calls if c.output not in ends]
    types = [[graph.types[t] for t in ts] for ts in (graph.inputs, [*graph.outputs, *between])]
    return [*graph.inputs, *graph.outputs, *between], SlotPlan.of(*types)


def _places(network: PreparedNetwork) -> dict[str, Place | None]:
    names, plan = _whole(network)
    return dict(zip(names, (*plan.inputs, *plan.outputs), strict=True))

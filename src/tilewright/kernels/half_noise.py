"""What noise kernels in halves make of their own, beside that of the tensors they are given.

One place for all: an implementation that `Rounds` in its own way computes what that adds to its
results, others are taken for products whose constant factor is rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tilewright.core.forms import Form
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.network import Array
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, HALVES, Coarse, Implementation, TakesCodes
from tilewright.kernels.ports import multiplied, single_ports
from tilewright.kernels.registry import applicable, implementation

_PICK = frozenset({"relu", "max_pool2d", "identity"})


@runtime_checkable
class Rounds(Protocol):
    """An implementation that rounds something else than one factor of each product once: factors
    that it has transformed, say."""

    def rounding_errors(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """What rounding adds to the anchor's result, in its shape, where the anchor reads these
        `operands`; data among them are halves already."""
        ...


@runtime_checkable
class RoundsAlike(Rounds, Protocol):
    """One that rounds the same places as others of its `family` do, which round to other types."""

    @property
    def family(self) -> str: ...


@runtime_checkable
class AddsInHalves(Protocol):
    """An implementation that adds up products in halves, for some of them at a time."""

    def addition_deviations(self, workload: Workload, operands: Sequence[Array]) -> Array:
        """The standard deviations of what these additions put into the anchor's result, where the
        anchor reads these `operands`: an array that can be broadcast to it."""
        ...


def multiplied_half(spec: Implementation | None) -> str:
    """The half type that an implementation multiplies in, which makes noise of its own; empty where
    it does not."""
    if not isinstance(spec, Coarse) or spec.multiplies_in not in HALVES:
        return ""
    return spec.multiplies_in


def own_rounders(workload: Workload, placement: Placement, half: str = HALF) -> tuple[str, ...]:
    """The implementations of a workload that round to a half type in their own way, by their names;
    among those of the usual half type such as read codes."""
    specs = applicable(workload, placement.target, placement.resources)
    coarse = (
        s
        for s in specs
        if multiplied_half(s) == half or (half == HALF and isinstance(s, TakesCodes))
    )
    return tuple(s.name for s in coarse if isinstance(s, Rounds))


def finer_rounders(
    workload: Workload, placement: Placement, types: tuple[str, str]
) -> tuple[tuple[str, str], ...]:
    """The implementations that round to the second of two half types in their own way, each behind
    that which does the same to the first; behind an empty name where none does."""
    first, second = (
        [(name, implementation(name)) for name in own_rounders(workload, placement, half)]
        for half in types
    )
    like = {spec.family: name for name, spec in first if isinstance(spec, RoundsAlike)}
    return tuple(
        (like.get(spec.family, "") if isinstance(spec, RoundsAlike) else "", name)
        for name, spec in second
    )


def adder(workload: Workload, placement: Placement, half: str) -> str:
    """The name of the implementation that adds up products of arguments in a half type; empty
    without one."""
    anchor, specs = workload.anchor, applicable(workload, placement.target, placement.resources)
    if anchor is None or max(anchor.inputs) >= len(workload.arguments):
        return ""
    adding = (s.name for s in specs if multiplied_half(s) == half and isinstance(s, AddsInHalves))
    return next(adding, "")


def storable(network: FusedNetwork) -> tuple[str, ...]:
    """The tensors of a network that may be stored in halves, or copied into them: singles that
    calls read, in the order in which they are made."""
    types = network.graph.types
    read = {tensor for call in network.calls for tensor in call.inputs}
    made = (*network.graph.inputs, *(call.output for call in network.calls))
    return tuple(t for t in made if t in read and types[t].dtype == "float32")


def rounded_factor(workload: Workload, placement: Placement, half: str = HALF) -> int | None:
    """The argument whose rounding stands for that of one factor: the constant one, else the last;
    None where nothing multiplies in a half type."""
    anchor, count = workload.anchor, len(workload.arguments)
    specs = applicable(workload, placement.target, placement.resources)
    if anchor is None or all(multiplied_half(spec) != half for spec in specs):
        return None
    constants = [i for i in anchor.inputs if i < count and workload.is_constant(i)]
    return next(iter((*constants, *reversed(multiplied(workload)))), None)


def rounds_anew(workload: Workload, ports: tuple[Form, ...]) -> bool:
    """Whether the result lies in halves and is rounded for that: what moves halves, or picks some
    of them, gives what already is one of their type."""
    if not ports or ports[-1].dtype not in HALVES:
        return False
    picks = all(
        OPERATORS[step.operator].movement or step.operator in _PICK for step in workload.steps
    )
    singles = single_ports(workload) - {len(workload.arguments)}
    return not picks or any(ports[index].dtype != ports[-1].dtype for index in singles)

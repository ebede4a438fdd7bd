"""What noise kernels in bfloat16 make of their own, beside that of the tensors they are given.

One place for all: an implementation that `Rounds` more than once says so, others are taken for
products whose constant factor is rounded once.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tilewright.core.forms import Form
from tilewright.core.records import Placement
from tilewright.graph.fuse import FusedNetwork
from tilewright.graph.operators import OPERATORS
from tilewright.graph.workload import Workload
from tilewright.kernels.base import HALF, Coarse, Implementation
from tilewright.kernels.ports import multiplied, single_ports
from tilewright.kernels.registry import applicable

_PICK = frozenset({"relu", "max_pool2d", "identity"})


@runtime_checkable
class Rounds(Protocol):
    """An implementation whose own noise is another than that of rounding one factor of each
    product once, because it transforms in halves, say."""

    def roundings(self, workload: Workload) -> float:
        """The power of its noise, where its data lies in halves, by that of rounding one factor of
        each product."""
        ...


def roundings(spec: Implementation, workload: Workload) -> float:
    """The power of an implementation's own noise by that of rounding one factor of each product; 0
    where it multiplies in single precision."""
    if not isinstance(spec, Coarse) or spec.multiplies_in != HALF:
        return 0.0
    return spec.roundings(workload) if isinstance(spec, Rounds) else 1.0


def storable(network: FusedNetwork) -> tuple[str, ...]:
    """The tensors of a network that may be stored in halves, or copied into them: singles that
    calls read, in the order in which they are made."""
    types = network.graph.types
    read = {tensor for call in network.calls for tensor in call.inputs}
    made = (*network.graph.inputs, *(call.output for call in network.calls))
    return tuple(t for t in made if t in read and types[t].dtype == "float32")


def rounded_factor(workload: Workload, placement: Placement) -> int | None:
    """The argument whose rounding stands for that of one factor: the constant one, else the last;
    None where nothing multiplies in halves."""
    anchor, count = workload.anchor, len(workload.arguments)
    specs = applicable(workload, placement.target, placement.resources)
    if anchor is None or not any(roundings(spec, workload) for spec in specs):
        return None
    constants = [i for i in anchor.inputs if i < count and workload.is_constant(i)]
    return next(iter((*constants, *reversed(multiplied(workload)))), None)


def rounds_anew(workload: Workload, ports: tuple[Form, ...]) -> bool:
    """Whether the result lies in halves and is rounded for that: what moves halves, or picks some
    of them, gives what already is one."""
    if not ports or ports[-1].dtype != HALF:
        return False
    picks = all(
        OPERATORS[step.operator].movement or step.operator in _PICK for step in workload.steps
    )
    singles = single_ports(workload) - {len(workload.arguments)}
    return not picks or any(ports[index].dtype != HALF for index in singles)

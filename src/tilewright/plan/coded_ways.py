"""Ways to compute a call where some of a network is on codes, and how tensors on codes are told.

t ─┬─ Conv b ─ … ─ Conv d ─ Add ─      "rounded": for b alone, Add reads numbers
   └─────────────────────────┘         "rounded for sums": for both, b is on codes, too
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.core.noise import Powers
from tilewright.graph.fuse import TaskCall
from tilewright.models.quantizing import CodedNode
from tilewright.plan.network_problem import Choice

CODED, ROUNDED, SHARED = "codes", "rounded", "rounded for sums"
"""The forms of a tensor on codes, which lies as it does in the network in which all are: written by
what is on codes itself; rounded for products; or rounded for all of its products, which are sure to
be on codes, so that sums and joins that read it may be, too."""
BY_ROUNDING = (ROUNDED, SHARED)


def written_as(form: str) -> str:
    """The form that a way tells to write where a tensor lies in this one."""
    return ROUNDED if form == SHARED else form


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to compute a call: the name and the picoseconds that it has in the problem, the form
    that it writes, the nodes that are on codes, the noise of codes and that of halves. `choice` is
    what it is where nothing is on codes, `codes_read` the tensors that it reads on codes, which
    may have been `rounded` for it."""

    value: str
    cost_ps: int
    written: str
    codes: Powers
    halves: Powers
    on_codes: frozenset[str] = frozenset()
    codes_read: frozenset[str] = frozenset()
    rounded: bool = False
    choice: Choice | None = None

    def readable(self, *, multiplied: bool) -> tuple[str, ...]:
        """The forms in which it may read a tensor on codes where it is on codes itself: rounded
        ones for its products and by a view, for all else those of which a product is sure."""
        view = self.written == ROUNDED
        return (CODED, *BY_ROUNDING) if view or (self.rounded and multiplied) else (CODED, SHARED)


def read_by_products(
    nodes: Sequence[CodedNode], calls: Iterable[TaskCall]
) -> dict[str, frozenset[str]]:
    """By the names of calls what those of their products read that may be on codes, each by the
    name of the tensor whose codes it has."""
    products = [node for node in nodes if node.product]
    return {
        call.name: frozenset(
            tensor for node in products if node.name in call.nodes for tensor in node.inputs
        )
        for call in calls
    }

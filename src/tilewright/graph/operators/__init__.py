"""The operator vocabulary: one module per group. See `docs/reference/operators.md`."""

from __future__ import annotations

from tilewright.graph.operators.base import Operator
from tilewright.graph.operators.elementwise import ELEMENTWISE
from tilewright.graph.operators.movement import MOVEMENT
from tilewright.graph.operators.opaque import OPAQUE
from tilewright.graph.operators.reduction import REDUCTION
from tilewright.graph.operators.windows import WINDOWS

OPERATORS: dict[str, Operator] = {
    operator.name: operator for operator in (*WINDOWS, *REDUCTION, *ELEMENTWISE, *MOVEMENT, *OPAQUE)
}
"""Every operator by name."""

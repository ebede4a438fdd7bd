"""The operator vocabulary: one module per group. See `docs/reference/operators.md`."""

from __future__ import annotations

from tilewright.graph.operators.base import Operator
from tilewright.graph.operators.convolution import CONVOLUTION
from tilewright.graph.operators.elementwise import ELEMENTWISE
from tilewright.graph.operators.interpolation import INTERPOLATION
from tilewright.graph.operators.matrix import MATRIX
from tilewright.graph.operators.movement import MOVEMENT
from tilewright.graph.operators.normalization import NORMALIZATION
from tilewright.graph.operators.opaque import OPAQUE
from tilewright.graph.operators.pooling import POOLING
from tilewright.graph.operators.reduction import REDUCTION

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        *CONVOLUTION,
        *MATRIX,
        *POOLING,
        *REDUCTION,
        *NORMALIZATION,
        *ELEMENTWISE,
        *MOVEMENT,
        *INTERPOLATION,
        *OPAQUE,
    )
}
"""Every operator by name."""

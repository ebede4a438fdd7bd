"""How much may be computed ahead: constants are folded while that makes the network smaller or
little larger."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.graph.network import Array
from tilewright.graph.tensor import TensorType

FOLDED_BYTES = 16 << 20
"""A result of more is folded only where what it comes from is as large."""
MOST_FOLDED_BYTES = 256 << 20
"""All results together, beside twice the constants that were there before."""
MOST_FOLDED_FLOP = 4 << 30
"""Work that is done for folding in all."""


class FoldingAllowance:
    """What folding the constants of one network may still create and cost."""

    def __init__(self, constants: Iterable[Array]) -> None:
        self._bytes = MOST_FOLDED_BYTES + 2 * sum(array.nbytes for array in constants)
        self._flop = MOST_FOLDED_FLOP

    def grants(self, result: TensorType, sources: Iterable[Array], flop: int) -> bool:
        """Whether a result may be computed; if so, it counts as created."""
        largest = max(FOLDED_BYTES, sum(array.nbytes for array in sources))
        if result.bytes > min(largest, self._bytes) or flop > self._flop:
            return False
        self._bytes -= result.bytes
        self._flop -= flop
        return True

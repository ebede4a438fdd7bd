"""What a problem is made of: variables, and tables that price their values.

Costs are whole picoseconds, so every solver adds up the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import InternalError

Costs = npt.NDArray[np.int64]
VariableKind = Literal["layout", "choice"]
TableRole = Literal["kernel", "transform", "rule"]
TableSource = Literal["measured", "modelled", "free"]

FORBIDDEN = 1 << 58
"""The cost of what must not be, in picoseconds (80 hours). All allowed costs together are less.

Up to 31 of them fit into 64 bits, so sums are cut back to it now and then.
"""

MOST_VARIABLES = 4
"""Variables of the widest table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Something to decide.

    `subject` is the tensor or the operator it is about. Layout values are `plain` or `blockedN`;
    choice values may end in `:` and the layouts of their ports, as `direct:blocked16,blocked32`.
    """

    name: str
    kind: VariableKind
    values: tuple[str, ...]
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Costs of the combined values of some variables.

    `costs` has one axis per variable, in picoseconds, `FORBIDDEN` where a combination must not be.
    A `kernel` is time in kernels, a `transform` time between layouts, a `rule` only forbids.
    `source` says where the numbers are from; `free` ones are zero by construction.
    """

    variables: tuple[str, ...]
    costs: Costs
    role: TableRole = "kernel"
    source: TableSource = "modelled"
    subject: str = ""

    def __post_init__(self) -> None:
        if not np.issubdtype(self.costs.dtype, np.integer):
            raise InternalError(f"costs are whole picoseconds, not {self.costs.dtype}")
        costs = np.array(self.costs, dtype=np.int64, order="C")
        costs.setflags(write=False)
        object.__setattr__(self, "costs", costs)

"""What a family of operators is to a predictor: its columns, its target, its facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilewright.predict.datasheets import Datasheet

Floats = npt.NDArray[np.float64]
Columns = Mapping[str, npt.NDArray[Any]]
"""Columns of a table by name, all of one length: float64, or text."""

Loss = Literal["square", "relative", "tilted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; `unit` is empty for counts and names. Values of `choices`, where there
    are any, are text, and no others are allowed; () as `choices` with `text` allows any text. What
    is `signed` may be zero; everything else is above zero."""

    name: str
    meaning: str
    unit: str = ""
    text: bool = False
    choices: tuple[str, ...] = ()
    signed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is predicted. `si` turns the column's values into SI units; what is not `scaled` is of
    one size whatever the operands, as power is."""

    column: Column
    si: float = 1.0
    scaled: bool = True

    @property
    def si_unit(self) -> str:
        """The column's unit without its prefix: ms → s."""
        return self.column.unit if self.si == 1.0 else self.column.unit[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of rows before they run.

    `values` is rows × `names`. `scale` is one natural size per row in the target's SI unit, such
    as the roofline time; the model learns the logarithm of scale ÷ target, the utilisation.
    """

    names: tuple[str, ...]
    values: Floats
    scale: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Settings of gradient-boosted trees. `members` models, each blind to one part of the training
    data, make one predictor; `loss` is of the logarithm. `threads` fit and ask them."""

    rounds: int = 600
    rate: float = 0.05
    depth: int = 8
    least_weight: float = 5.0
    row_share: float = 0.8
    column_share: float = 0.5
    loss: Loss = "square"
    members: int = 4
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Operators of one kind.

    `operands` are the columns that make a configuration; two rows that agree in the columns
    `apart` (all operands, where empty) never lie on both sides of a split. `facts` takes the rows
    of one device. A family that is `roofed` has times bounded by a roofline, so that a device left
    out needs a datasheet; `verified` is how many of its best guesses a search would measure.
    `smooth` adds a Gaussian process to the trees: for tables of a few hundred rows. `trend` names
    facts above zero that a new device may be off by in proportion, to some power, since it is not
    known which of them counts there: what tiles of each size would waste.
    """

    name: str
    operands: tuple[Column, ...]
    targets: tuple[Target, ...]
    facts: Callable[[Columns, Datasheet], Facts]
    apart: tuple[str, ...] = ()
    trees: Trees = Trees()
    roofed: bool = True
    verified: int = 0
    smooth: bool = False
    trend: tuple[str, ...] = ()

    @property
    def configuration(self) -> tuple[str, ...]:
        """The names of the columns that tell configurations apart."""
        return self.apart or tuple(column.name for column in self.operands)

    def with_threads(self, threads: int) -> Family:
        """The same family, fitted by this many threads."""
        return replace(self, trees=replace(self.trees, threads=threads))


def facts_of(named: Mapping[str, Any], scale: Floats) -> Facts:
    """Facts from one array, or one number, per name."""
    values = np.empty((len(scale), len(named)))
    for place, value in enumerate(named.values()):
        values[:, place] = value
    return Facts(names=tuple(named), values=values, scale=scale)

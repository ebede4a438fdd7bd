"""What a family of operators is to a predictor: its columns, its target, its features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.predict.datasheets import Datasheet
from tilewright.predict.regressors import Forest, Trees

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Columns = Mapping[str, npt.NDArray[Any]]
"""Columns of a table by name, all of one length: float64, or text."""


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
class Features:
    """What is known of rows before they run.

    `values` is rows × `names`. `scale` is one natural size per row in the target's SI unit, such
    as the roofline time; the model learns the logarithm of scale ÷ target, the utilisation.
    """

    names: tuple[str, ...]
    values: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: Integers) -> Features:
        """These rows only."""
        return Features(names=self.names, values=self.values[rows], scale=self.scale[rows])

    def aligned(self, names: Sequence[str]) -> Floats:
        """The values of the same rows with these columns; NaN for those that are not here."""
        if tuple(names) == self.names:
            return self.values
        known = dict(zip(self.names, self.values.T, strict=True))
        nothing = np.full(len(self.values), np.nan)
        return np.column_stack([known.get(name, nothing) for name in names])


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Operators of one kind.

    `operands` are the columns that make a configuration; two rows that agree in the columns
    `apart` (all operands, where empty) never lie on both sides of a split. `features` takes the
    rows of one device, `regressor` learns from them. A family that is `roofed` has times bounded by
    a roofline, so that a device left out needs a datasheet; `verified` is how many of its best
    guesses a search would measure. `trend` names features above zero that a new device may be off
    by in proportion, to some power, since it is not known which of them counts there: what tiles of
    each size would waste.
    """

    name: str
    operands: tuple[Column, ...]
    targets: tuple[Target, ...]
    features: Callable[[Columns, Datasheet], Features]
    regressor: Trees | Forest = Trees()
    apart: tuple[str, ...] = ()
    roofed: bool = True
    verified: int = 0
    trend: tuple[str, ...] = ()

    @property
    def configuration(self) -> tuple[str, ...]:
        """The names of the columns that tell configurations apart."""
        return self.apart or tuple(column.name for column in self.operands)


def features_of(named: Mapping[str, Any], scale: Floats) -> Features:
    """Features from one array, or one number, per name."""
    columns = [np.broadcast_to(value, len(scale)) for value in named.values()]
    values = np.column_stack(columns).astype(np.float64)
    return Features(names=tuple(named), values=values, scale=scale)

"""Settings as columns, one array per knob, for facts and filters that answer for many at once.

`column` and `chosen` take any sequence of settings. Those that a space numbers come as
`KnobColumns`, which are never taken apart into one mapping per setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tilewright.core.records import KnobValue, Settings
from tilewright.kernels.knobs import Knob

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


class KnobColumns(Sequence[Settings]):
    """Settings by the places of their values: `digits` has a row per setting, a column per knob."""

    def __init__(self, knobs: Sequence[Knob], digits: Numbers) -> None:
        self._knobs, self._digits = tuple(knobs), digits
        self._places = {knob.name: place for place, knob in enumerate(self._knobs)}

    def __len__(self) -> int:
        return len(self._digits)

    @overload
    def __getitem__(self, row: int) -> Settings: ...
    @overload
    def __getitem__(self, row: slice) -> KnobColumns: ...
    def __getitem__(self, row: int | slice) -> Settings | KnobColumns:
        if isinstance(row, slice):
            return KnobColumns(self._knobs, self._digits[row])
        digits: list[int] = self._digits[row].tolist()
        return {k.name: k.values[place] for k, place in zip(self._knobs, digits, strict=True)}

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs."""
        return tuple(self._places)

    def values(self, name: str) -> tuple[KnobValue, ...]:
        """The values of a knob. Raises KeyError for one that is not of the space."""
        return self._knobs[self._places[name]].values

    def places(self, name: str) -> Numbers:
        """Which of a knob's values each setting has."""
        return self._digits[:, self._places[name]]


def knob_columns(settings: Sequence[Settings]) -> KnobColumns | None:
    """Settings of the same knobs, taken apart once where many facts ask for them; None where the
    knobs differ."""
    names = tuple(settings[0]) if settings else ()
    if any(one.keys() != settings[0].keys() for one in settings):
        return None
    knobs: list[Knob] = []
    digits = np.empty((len(settings), len(names)), dtype=np.int64)
    for number, name in enumerate(names):
        chosen_values = [one[name] for one in settings]
        places = {value: place for place, value in enumerate(dict.fromkeys(chosen_values))}
        digits[:, number] = [places[value] for value in chosen_values]
        knobs.append(Knob(name=name, values=tuple(places)))
    return KnobColumns(knobs, digits)


def by_type(dtypes: Sequence[str], tell: Callable[[str], float]) -> Floats:
    """What `tell` says of each of many element types, which is asked once about each."""
    told = {dtype: tell(dtype) for dtype in set(dtypes)}
    return np.array([told[dtype] for dtype in dtypes], dtype=np.float64)


def column(settings: Sequence[Settings], name: str) -> Floats:
    """The numbers that a knob has in each setting; truth values as 0 and 1."""
    if isinstance(settings, KnobColumns):
        values = np.array([float(value) for value in settings.values(name)], dtype=np.float64)
        return values[settings.places(name)]
    return np.array([float(one[name]) for one in settings], dtype=np.float64)


def whole(settings: Settings | Sequence[Settings], name: str) -> Any:
    """The whole number that a knob has in one setting; of many, a column of them."""
    if isinstance(settings, Mapping):
        return int(settings[name])
    return column(settings, name).astype(np.int64)


def least(a: Any, b: Any) -> Any:
    """The smaller of two whole numbers; of columns, that of each row."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def by_combination(tell: Callable[..., Any], *columns: Any) -> Floats:
    """What `tell` says of each row of columns of whole numbers, asked once about each combination;
    a number or several of a row."""
    rows = np.stack(np.broadcast_arrays(*map(np.atleast_1d, columns)), axis=-1).astype(np.int64)
    found, places = np.unique(rows, axis=0, return_inverse=True)
    told = np.array([tell(*row) for row in found.tolist()], dtype=np.float64)
    return told[places.reshape(-1)]


def chosen(settings: Sequence[Settings], name: str, value: KnobValue) -> Bools:
    """In which settings a knob has this value."""
    if isinstance(settings, KnobColumns):
        equal = np.array([offered == value for offered in settings.values(name)], dtype=np.bool_)
        return equal[settings.places(name)]
    return np.array([one[name] == value for one in settings], dtype=np.bool_)

"""What a family of operators is to a predictor: its columns, its target, its features, and what a
datasheet says of a device; and what judging predictors rests on: splits that do not leak, rank
correlation, and how wide intervals must be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import ModelError
from tilewright.core.input_files import readable
from tilewright.cost.floors import Peaks
from tilewright.hardware.datasheets import known_capability
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


_GIGA, _MEBI = 1e9, 2.0**20
_FIELDS = {
    "memory_bandwidth_gb_s": ("bytes_per_s", _GIGA),
    "peak_fp32_gflop_s": ("flop_per_s", _GIGA),
    "multiprocessors": ("multiprocessors", 1.0),
    "l2_cache_mb": ("l2_bytes", _MEBI),
}
"""By the file's names ours, and what turns the value into SI units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """A device's peaks. `capability` is NVIDIA's compute capability, 0 where there is none."""

    device: str
    bytes_per_s: float
    flop_per_s: float
    multiprocessors: float
    l2_bytes: float
    capability: float = 0.0

    @property
    def peaks(self) -> Peaks:
        """A datasheet says nothing of what caches give: they count like memory."""
        return Peaks(
            flop_per_s=self.flop_per_s,
            bytes_per_s=self.bytes_per_s,
            cache_bytes_per_s=self.bytes_per_s,
        )

    @property
    def ridge(self) -> float:
        """FLOP per byte at which compute and memory take equally long."""
        return self.flop_per_s / self.bytes_per_s


def nominal(device: str) -> Datasheet:
    """A stand-in for a device without datasheet. Its peaks scale the target and nothing else."""
    return Datasheet(
        device=device,
        bytes_per_s=500e9,
        flop_per_s=8e12,
        multiprocessors=28,
        l2_bytes=4 * _MEBI,
    )


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


def read_datasheets(path: Path) -> dict[str, Datasheet]:
    """Datasheets by device from a JSON list of objects.

    Each has `device`, `memory_bandwidth_gb_s`, `peak_fp32_gflop_s`, `multiprocessors` and
    `l2_cache_mb`, and may have `compute_capability`; what else it has is not read. Raises
    ModelError for a file that is missing or something else, naming the entry and the field.
    """
    try:
        with readable(path):
            entries: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no JSON: {error}") from error
    if not isinstance(entries, list):
        raise ModelError(f"{path} is no list of datasheets")
    sheets: dict[str, Datasheet] = {}
    for number, entry in enumerate(cast("list[Any]", entries)):
        sheet = _sheet(entry, f"entry {number} of {path}")
        if sheet.device in sheets:
            raise ModelError(f"{path} has two datasheets of {sheet.device}")
        sheets[sheet.device] = sheet
    return sheets


def _sheet(entry: Any, where: str) -> Datasheet:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    device = fields.get("device")
    if not isinstance(device, str):
        raise ModelError(f"{where} is no object with a device")
    values = {own: _number(fields, name, where) * si for name, (own, si) in _FIELDS.items()}
    capability = known_capability(device)
    if "compute_capability" in fields:
        capability = _number(fields, "compute_capability", where)
    return Datasheet(device=device, capability=capability, **values)


def _number(entry: Mapping[str, Any], name: str, where: str) -> float:
    value = entry.get(name)
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
    if not isfinite(number) or number <= 0:
        raise ModelError(f"{where} has no {name} above zero")
    return float(number)


_COVERAGE = 0.9
"""The share of rows that an interval is made to hold."""


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Spearman's, ties sharing their mean rank; None where one side is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    from scipy import stats

    return float(cast(Any, stats).spearmanr(first, second).statistic)


def conformal_reach(residuals: Floats) -> float:
    """The half width that holds 90 % of new residuals drawn like these; infinite when there are
    too few to tell.

    Split conformal prediction: Vovk, Gammerman & Shafer 2005, "Algorithmic Learning in a Random
    World", chapter 2.
    """
    place = int(np.ceil((len(residuals) + 1) * _COVERAGE))
    return float(np.sort(np.abs(residuals))[place - 1]) if place <= len(residuals) else np.inf


def configuration_groups(columns: Columns, names: Sequence[str]) -> Integers:
    """A number per row, the same for rows that agree in all these columns, from 0 without gaps."""
    codes = [np.unique(columns[name], return_inverse=True)[1].ravel() for name in names]
    table = np.column_stack(codes)
    return np.unique(table, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def folds_of(groups: Integers, folds: int, seed: int) -> Integers:
    """A fold per row: groups are dealt out at random, so that each fold has as many as the others
    or one more."""
    count = int(groups.max()) + 1 if len(groups) else 0
    dealt = np.random.default_rng(seed).permutation(count) % folds
    return dealt[groups].astype(np.int64)

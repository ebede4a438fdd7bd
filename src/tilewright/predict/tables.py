# pyright: basic
"""Tables of measurements by anyone: read, checked against what a family wants, and its predictors
judged on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.core.codec import digest
from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.events import EventSink, Stage
from tilewright.core.input_files import readable
from tilewright.core.predictions import Covered, EvaluatePick
from tilewright.predict.base import (
    Column,
    Columns,
    Datasheet,
    Family,
    Features,
    Floats,
    Integers,
    Target,
    configuration_groups,
    nominal,
    read_datasheets,
)
from tilewright.predict.evaluation import (
    ALL,
    Assessment,
    EvaluateRequest,
    Evaluation,
    HeldOut,
    Learnt,
    cross_validated,
    evaluated,
    held_out,
    together,
)
from tilewright.predict.families import FAMILIES, family_named
from tilewright.predict.family_models import Predictions, TrainingSet, fit_model
from tilewright.predict.transfer import (
    Forecast,
    calibrated,
    choose,
    coordinates,
    forecast,
    learn,
    regret,
)

if TYPE_CHECKING:
    import polars

DEVICE = "device"
ONLY = "all"
"""The device of every row of a table without that column."""
FORMATS = (".parquet", ".csv")
_QUOTES = 'A value with commas, such as "op:conv2d[c=64,h=28,w=28,out=64,k=3]", stands in quotes.'
LEAST_ROWS = 20
LEAST_SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The usable rows of a table for one target.

    `target` is in SI units; NaN marks a row that failed, which only a family that searches keeps.
    `dropped` says how many rows were left out and why.
    """

    columns: Columns
    devices: tuple[str, ...]
    device: Integers
    target: Floats
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.target)


def read_table(path: Path) -> polars.DataFrame:
    """A `.parquet` or `.csv` file. Raises UsageError for another kind, ModelError for a file that
    is missing or broken."""
    import polars

    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} is neither {' nor '.join(FORMATS)}.")
    read_csv = partial(polars.read_csv, infer_schema_length=None)
    read = polars.read_parquet if path.suffix.lower() == ".parquet" else read_csv
    try:
        with readable(path):
            return read(path)
    except polars.exceptions.PolarsError as error:
        raise ModelError(
            f"{path} is no table: {str(error).splitlines()[0]}",
            hint=_QUOTES if path.suffix.lower() == ".csv" else None,
        ) from error


def read_texts(path: Path, column: str) -> list[str]:
    """A column of texts of a table. Raises UsageError where the table has no such column, and what
    `read_table` raises."""
    table = read_table(path)
    if column not in table.columns:
        raise UsageError(
            f"{path} has no column {column}.", hint=f"It has {', '.join(table.columns) or 'none'}."
        )
    return [str(value) for value in table[column] if value is not None]


def targets_in(table: polars.DataFrame, family: Family) -> list[Target]:
    """The family's targets that the table has, at least one.

    Raises UsageError naming every column the table lacks, with its unit.
    """
    there = set(table.columns)
    found = [target for target in family.targets if target.column.name in there]
    lacking = [column for column in family.operands if column.name not in there]
    if not found:
        lacking.append(family.targets[0].column)
    if lacking:
        names = ", ".join(f"{c.name} ({c.unit})" if c.unit else c.name for c in lacking)
        hint = close_matches(lacking[0].name, there) if there else None
        raise UsageError(f"The table lacks {names}, which {family.name} needs.", hint=hint)
    return found


def measured(table: polars.DataFrame, family: Family, target: Target) -> Measured:
    """The rows whose operands and target can be used. Raises ModelError for a column of the wrong
    type or a text that no choice allows."""
    columns = {column.name: _values(table, column) for column in family.operands}
    values = _values(table, target.column) * target.si
    named = table[DEVICE] if DEVICE in table.columns else [ONLY] * len(table)
    names = np.array(["" if name is None else str(name) for name in named], dtype=object)
    fine = np.array(names != "", dtype=bool)
    for column in family.operands:
        fine &= _usable(columns[column.name], column)
    positive = np.isfinite(values) & (values > 0)
    failed = ~np.isfinite(values) & bool(family.verified)
    kept = fine & (positive | failed)
    devices, device = np.unique(names[kept].astype(str), return_inverse=True)
    reasons = {
        "no device, or an operand that is missing or not above zero": int((~fine).sum()),
        f"no {target.column.name} above zero": int((fine & ~positive & ~failed).sum()),
    }
    return Measured(
        columns={name: column[kept] for name, column in columns.items()},
        devices=tuple(str(name) for name in devices),
        device=device.ravel(),
        target=values[kept],
        dropped={reason: count for reason, count in reasons.items() if count},
    )


def _values(table: polars.DataFrame, column: Column):
    import polars

    series = table[column.name]
    if not column.text:
        if not (series.dtype.is_numeric() or series.dtype in (polars.Boolean, polars.Null)):
            raise ModelError(f"column {column.name} holds {series.dtype}, not numbers")
        return series.cast(polars.Float64).to_numpy()
    values = np.array(["" if v is None else str(v) for v in series], dtype=object)
    unknown = sorted(set(values) - set(column.choices) - {""}) if column.choices else []
    if unknown:
        known = ", ".join(column.choices)
        raise ModelError(f"column {column.name} holds {unknown[0]!r}; known are {known}")
    return values


def _usable(values, column: Column):
    if column.text:
        return values != ""
    return np.isfinite(values) & ((values >= 0) if column.signed else (values > 0))


def chosen(columns: Columns, rows: Sequence[int] | np.ndarray) -> Columns:
    """The same columns with these rows only."""
    return {name: values[rows] for name, values in columns.items()}


def evaluate_table(
    table: Path, request: EvaluateRequest, events: EventSink, threads: int
) -> Evaluation:
    """Fit a predictor of each target of a table, by so many `threads`, and judge it; rows that were
    left out are told as notes.

    Raises UsageError for flags that do not go with a table, an unknown family, a column or a
    datasheet that is missing, and a single device with none to learn from; ModelError for a file
    that is broken or holds too few rows.
    """
    if request.split == "network":
        raise UsageError(
            "--split network is for our own kernels: the rows of a table belong to no network.",
            hint="--split configuration keeps equal configurations together.",
        )
    if request.family == ALL:
        raise UsageError(
            "--table needs --family: what the rows are.", hint=f"Known are {', '.join(FAMILIES)}."
        )
    events(Stage(name="evaluate", detail=f"{request.family} by {request.split}"))
    request.require_shots(LEAST_SAMPLES)
    family = family_named(request.family)
    family = replace(family, regressor=replace(family.regressor, threads=threads))
    cases: list[tuple[str, Callable[[], Assessment]]] = []
    notes: list[str] = []
    with threadpool_limits(limits=threads, user_api="blas"):
        sheets = read_datasheets(request.specs) if request.specs else {}
        found = read_table(table)
        for target in targets_in(found, family):
            rows = measured(found, family, target)
            notes += [
                f"{target.column.name}: {count} rows left out: {reason}."
                for reason, count in rows.dropped.items()
            ]
            case = _TableCase(path=table, family=family, target=target, rows=rows, sheets=sheets)
            assess = case.by_device if request.split == "device" else case.by_configuration
            cases.append((family.name, partial(assess, request)))
        return evaluated(request, cases, events, notes)


@dataclass(frozen=True, kw_only=True)
class _TableCase:
    """One target of one table."""

    path: Path
    family: Family
    target: Target
    rows: Measured
    sheets: Mapping[str, Datasheet]

    @cached_property
    def usable(self) -> Integers:
        """The numbers of the rows with a target."""
        found = np.flatnonzero(np.isfinite(self.rows.target))
        if len(found) < LEAST_ROWS:
            raise ModelError(
                f"{self.path} has {len(found)} usable rows; an evaluation needs {LEAST_ROWS}."
            )
        return found

    def device_rows(self, number: int) -> Integers:
        """The numbers of one device's rows."""
        return np.flatnonzero(self.rows.device == number)

    def sheet(self, number: int) -> Datasheet:
        """A device's datasheet, a nominal one where none is given."""
        device = self.rows.devices[number]
        return self.sheets.get(device) or nominal(device)

    def features(self, number: int) -> Features:
        """The features of one device's rows."""
        columns = chosen(self.rows.columns, self.device_rows(number))
        found = self.family.features(columns, self.sheet(number))
        return found if self.target.scaled else replace(found, scale=np.ones(len(found)))

    @cached_property
    def data(self) -> TrainingSet:
        """The usable rows in the table's order, with the device's number as one more feature."""
        usable = self.usable
        each = [self.features(number) for number in range(len(self.rows.devices))]
        places = np.argsort(np.argsort(self.rows.device, kind="stable"))
        values = np.concatenate([features.values for features in each])[places]
        every = TrainingSet(
            family=self.family.name,
            target_name=self.target.column.name,
            unit=self.target.si_unit,
            features=Features(
                names=(*each[0].names, "device"),
                values=np.column_stack([values, self.rows.device.astype(np.float64)]),
                scale=np.concatenate([features.scale for features in each])[places],
            ),
            target=self.rows.target,
            configurations=configuration_groups(self.rows.columns, self.family.configuration),
            groups=np.array(self.rows.devices, dtype=object)[self.rows.device],
            data_hash=digest(self.path.read_bytes()),
        )
        return every.part(usable)

    def by_configuration(self, request: EvaluateRequest) -> Assessment:
        """One predictor of all devices' rows, judged device by device."""
        distinct = len(np.unique(self.data.configurations))
        if distinct < max(request.folds, self.family.regressor.members):
            raise ModelError(
                f"{self.path} has {distinct} different configurations, fewer than folds."
            )
        found = cross_validated(
            self.data,
            partial(fit_model, regressor=self.family.regressor),
            request.folds,
            request.seed,
        )
        there = [name for name in self.rows.devices if name in set(found.groups)]
        return self._assessment([*found.by_group(there).values()], len(there) > 1)

    def _assessment(
        self, parts: Sequence[HeldOut], joined: bool, picks: Sequence[EvaluatePick] = ()
    ) -> Assessment:
        columns = chosen(self.rows.columns, self.usable)
        numbers = [column.name for column in self.family.operands if not column.text]
        learnt = Learnt(
            data=self.data,
            devices=self.rows.devices,
            covers=[
                Covered(name=name, low=float(columns[name].min()), high=float(columns[name].max()))
                for name in numbers
            ],
        )
        found = {str(part.groups[0]): part for part in parts}
        if joined:
            found[ALL] = together(parts)
        return Assessment(learnt=[learnt], parts=found, picks=picks)

    def by_device(self, request: EvaluateRequest) -> Assessment:
        """Every device predicted from the others, and from a few samples of its own."""
        numbers = range(len(self.rows.devices))
        self._require_devices(request)
        features = [self.features(number) for number in numbers]
        targets = [self.rows.target[self.device_rows(number)] for number in numbers]
        known = [
            learn(self.family, self.sheet(n), features[n].part(there), targets[n][there])
            for n in numbers
            for there in [np.flatnonzero(np.isfinite(targets[n]))]
        ]
        margins = [
            np.column_stack([device.margin(about.values) for device in known]) for about in features
        ]

        def guessed(new: int, others: list[int]) -> Forecast:
            near = [known[other] for other in others]
            scale, said = features[new].scale, margins[new][:, others]
            return forecast(self.family, known[new].sheet, scale, near, said)

        def reach(held: int, rest: list[int]) -> float:
            missed = np.abs(np.log(guessed(held, rest).times() / targets[held]))
            return float(np.quantile(missed[np.isfinite(missed)], 0.9))

        parts: list[HeldOut] = []
        picks: list[EvaluatePick] = []
        for new in numbers:
            others = [number for number in numbers if number != new]
            guess, left = guessed(new, others), np.isfinite(targets[new])
            if request.shots:
                columns = chosen(self.rows.columns, self.device_rows(new))
                inputs = coordinates(self.family, columns, features[new], guess)
                sampled = choose(self.family, inputs, guess, request.shots, request.seed)
                predicted, width = calibrated(self.family, inputs, guess, sampled, targets[new])
                left[sampled] = False
                picks += self._picks(new, sampled, predicted)
            else:
                predicted = guess.times()
                # The widest of the known devices', each predicted from the rest of them.
                rests = {held: [o for o in others if o != held] for held in others}
                width = max((reach(*one) for one in rests.items() if one[1]), default=np.inf)
            parts.append(self._part(new, predicted, width, left))
        return self._assessment(parts, True, picks)

    def _part(self, new: int, predicted: Floats, width: float, left: np.ndarray) -> HeldOut:
        """The rows of a device that are `left` to judge, all with an interval of one width."""
        place = np.searchsorted(self.usable, self.device_rows(new)[left])
        reach = np.full(len(place), width)
        said = Predictions(predicted=predicted[left], reach=reach, outside=reach < 0)
        return held_out(self.data.part(place), said)

    def _picks(self, new: int, sampled: Integers, predicted: Floats) -> list[EvaluatePick]:
        """What a search by these predictions would find; none for families that search nothing."""
        verified = self.family.verified
        if not verified:
            return []
        target = self.rows.target[self.device_rows(new)]
        return [
            EvaluatePick(
                group=self.rows.devices[new],
                shots=len(sampled),
                verified=verified,
                regret=regret(predicted, target, sampled, verified),
            )
        ]

    def _require_devices(self, request: EvaluateRequest) -> None:
        devices = self.rows.devices
        if len(self.usable) and len(devices) < 2:
            raise UsageError(
                f"--split device needs rows of two devices at least; this table has "
                f"{len(devices)}.",
                hint="--split configuration keeps configurations apart on one device.",
            )
        bare = [device for device in devices if device not in self.sheets]
        if self.family.roofed and bare:
            raise UsageError(
                f"No datasheet of {', '.join(bare)}.",
                hint="--specs FILE gives them; docs/reference/evaluate.md has the fields.",
            )
        needed = LEAST_ROWS + request.shots
        for device, count in zip(
            devices, np.bincount(self.rows.device[self.usable], minlength=len(devices)), strict=True
        ):
            if count < needed:
                raise ModelError(f"{device} has {count} usable rows; this needs {needed}.")

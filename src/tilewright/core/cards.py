"""What a predictor's card says beside its errors: data, split, limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The range of a number of the operators that were learnt from, least and greatest."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorCard:
    """One predictor: a family's, of one target.

    `devices` are the device classes that its data is of, `rows` measurements of `configurations`
    different operators; `data_hash` identifies them; `measured_from` and `measured_until` are the
    days of the measurements of these classes, None where they were not recorded. `split` is what
    the errors are of; `limits` are sentences. `date` is the day of the evaluation, `version` that
    of tilewright.
    """

    family: str
    target: str
    devices: tuple[str, ...]
    rows: int
    configurations: int
    data_hash: str
    measured_from: str | None
    measured_until: str | None
    split: str
    folds: int
    seed: int
    covers: tuple[Covered, ...]
    limits: tuple[str, ...]
    date: str
    version: str

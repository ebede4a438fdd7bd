"""Predictors judged on a table that somebody measured, by splits that do not leak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tilewright.core.errors import ModelError, UsageError, close_matches
from tilewright.core.fingerprints import digest
from tilewright.core.predictions import (
    Covered,
    EvaluatePick,
    EvaluateResult,
    EvaluateRow,
    PredictorCard,
)
from tilewright.predict.base import Facts, Family, Floats, Target
from tilewright.predict.cards import KeptAside, Learnt, card
from tilewright.predict.crossfit import cross_fit, part_of
from tilewright.predict.datasheets import Datasheet, nominal, read_datasheets
from tilewright.predict.families.registry import family_named
from tilewright.predict.judged import Evaluation, Judged
from tilewright.predict.metrics import Score, score
from tilewright.predict.shots import choose, coordinates, correct, regret
from tilewright.predict.splits import Integers, configuration_groups, folds_of
from tilewright.predict.table import ONLY, Measured, chosen, measured, read_table, targets_in
from tilewright.predict.transfer import Forecast, Known, Source, forecast, learn

Split = Literal["configuration", "device"]

Booleans = npt.NDArray[np.bool_]
Margins = Mapping[tuple[int, int], Floats]
"""What the first device's models say of the second's rows."""

LEAST_ROWS = 20
LEAST_SHOTS = 5
_SEEDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be evaluated. `folds` is for the split by configuration, `shots` for the one by
    device: samples that the left-out device may be measured on. `threads` fit the predictor.
    Raises UsageError for an unknown split, and for numbers that make no sense or do not go with
    the split."""

    table: Path
    family: str
    split: Split
    folds: int = 5
    specs: Path | None = None
    shots: int = 0
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise UsageError(
                f"There is no split {self.split!r}.",
                hint=close_matches(self.split, get_args(Split)),
            )
        if self.folds < 2:
            raise UsageError(f"--folds must be at least 2, not {self.folds}.")
        if self.shots and self.split != "device":
            raise UsageError("--shots goes with --split device: samples of the device left out.")
        if self.shots and self.shots < LEAST_SHOTS:
            raise UsageError(f"--shots must be 0 or at least {LEAST_SHOTS}, not {self.shots}.")


@dataclass(slots=True, kw_only=True)
class _Findings:
    rows: list[EvaluateRow] = field(default_factory=list[EvaluateRow])
    picks: list[EvaluatePick] = field(default_factory=list[EvaluatePick])
    notes: list[str] = field(default_factory=list[str])
    judged: list[Judged] = field(default_factory=list[Judged])
    cards: list[PredictorCard] = field(default_factory=list[PredictorCard])


def evaluate(question: Question) -> Evaluation:
    """Fit and judge, group by group.

    Raises UsageError for an unknown family, a column or datasheet that is missing, or a single
    device with none to learn from; ModelError for a file that is broken or holds too few rows.
    """
    family = family_named(question.family).with_threads(question.threads)
    sheets = read_datasheets(question.specs) if question.specs else {}
    table = read_table(question.table)
    findings = _Findings()
    for target in targets_in(table, family):
        rows = measured(table, family, target)
        for reason, count in rows.dropped.items():
            findings.notes.append(f"{target.column.name}: {count} rows left out: {reason}.")
        _require_rows(rows, question)
        judge = _by_configuration if question.split == "configuration" else _by_device
        case = _Case(family=family, target=target, rows=rows, sheets=sheets)
        known = len(findings.rows)
        findings.judged.append(judge(question, case, findings))
        findings.cards.append(_card(question, case, findings.rows[known:]))
    result = EvaluateResult(
        family=family.name,
        split=question.split,
        shots=question.shots,
        rows=tuple(findings.rows),
        picks=tuple(findings.picks),
        notes=tuple(findings.notes),
        cards=tuple(findings.cards),
    )
    return Evaluation(result=result, judged=tuple(findings.judged))


def row_of(family: str, target: str, group: str, judged: Score) -> EvaluateRow:
    """A score as a row of the answer."""
    return EvaluateRow(
        family=family,
        target=target,
        group=group,
        n=judged.n,
        mape=judged.mape,
        median_ape=judged.median_ape,
        p90_ape=judged.p90_ape,
        within_5=judged.within_5,
        within_10=judged.within_10,
        within_20=judged.within_20,
        spearman=judged.spearman,
        coverage_90=judged.coverage_90,
    )


def _require_rows(rows: Measured, question: Question) -> None:
    usable = int(np.isfinite(rows.target).sum())
    if usable < LEAST_ROWS:
        raise ModelError(
            f"{question.table} has {usable} usable rows; an evaluation needs {LEAST_ROWS}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One target of one table."""

    family: Family
    target: Target
    rows: Measured
    sheets: Mapping[str, Datasheet]

    def device_rows(self, number: int) -> Integers:
        """The numbers of one device's rows."""
        return np.flatnonzero(self.rows.device == number)

    def sheet(self, device: str) -> Datasheet:
        """The device's datasheet, a nominal one where none is given."""
        return self.sheets.get(device) or nominal(device)

    def facts(self, number: int) -> Facts:
        """The facts of one device's rows."""
        columns = chosen(self.rows.columns, self.device_rows(number))
        facts = self.family.facts(columns, self.sheet(self.rows.devices[number]))
        if self.target.scaled:
            return facts
        return Facts(names=facts.names, values=facts.values, scale=np.ones(len(facts.scale)))

    def row(self, group: str, judged: Score) -> EvaluateRow:
        """A row of the answer."""
        return row_of(self.family.name, self.target.column.name, group, judged)

    def groups(self) -> Integers:
        """A number per row, the same for equal configurations."""
        return configuration_groups(self.rows.columns, self.family.configuration)

    def judged(self, rows: Integers, predicted: Floats, reach: Floats) -> Judged:
        """Predictions of these rows, by device."""
        return Judged(
            family=self.family.name,
            target=self.target.column.name,
            unit=self.target.si_unit,
            measured=self.rows.target[rows],
            predicted=predicted,
            reach=reach,
            groups=np.array(self.rows.devices, dtype=object)[self.rows.device[rows]],
        )


def _card(question: Question, case: _Case, rows: Sequence[EvaluateRow]) -> PredictorCard:
    usable = np.flatnonzero(np.isfinite(case.rows.target))
    columns = chosen(case.rows.columns, usable)
    return card(
        Learnt(
            family=case.family.name,
            target=case.target.column.name,
            devices=case.rows.devices,
            rows=len(usable),
            configurations=len(np.unique(case.groups()[usable])),
            data_hash=digest(question.table.read_bytes()),
            covers=[
                Covered(name=name, low=float(columns[name].min()), high=float(columns[name].max()))
                for name in (column.name for column in case.family.operands if not column.text)
            ],
        ),
        KeptAside(name=question.split, folds=question.folds, seed=question.seed),
        rows,
    )


def _by_configuration(question: Question, case: _Case, findings: _Findings) -> Judged:
    usable = np.isfinite(case.rows.target)
    facts = _all_facts(case)
    groups = case.groups()
    distinct = len(np.unique(groups[usable]))
    if distinct < max(question.folds, case.family.trees.members):
        raise ModelError(
            f"{question.table} has {distinct} different configurations, fewer than folds."
        )
    folds = folds_of(groups, question.folds, question.seed)
    predicted, reach = np.full(len(case.rows), np.nan), np.zeros(len(case.rows))
    for fold in range(question.folds):
        train = np.flatnonzero((folds != fold) & usable)
        test = np.flatnonzero((folds == fold) & usable)
        if not len(test):
            continue
        fitted = cross_fit(case.family, facts, case.rows.target, groups, (train, test))
        predicted[test], reach[test] = fitted.predicted, fitted.reach
    for number, device in enumerate(case.rows.devices):
        mine = case.device_rows(number)
        mine = mine[usable[mine]]
        if len(mine):
            judged = score(predicted[mine], case.rows.target[mine], reach[mine])
            findings.rows.append(case.row(device, judged))
    if len(case.rows.devices) > 1:
        judged = score(predicted[usable], case.rows.target[usable], reach[usable])
        findings.rows.append(case.row(ONLY, judged))
    return case.judged(np.flatnonzero(usable), predicted[usable], reach[usable])


def _all_facts(case: _Case) -> Facts:
    """The facts of every row in the table's order, with the device's number as one more."""
    per_device = [case.facts(number) for number in range(len(case.rows.devices))]
    order = np.concatenate([case.device_rows(n) for n in range(len(per_device))])
    values = np.empty((len(case.rows), len(per_device[0].names) + 1))
    scale = np.empty(len(case.rows))
    values[order, :-1] = np.concatenate([facts.values for facts in per_device])
    values[:, -1] = case.rows.device
    scale[order] = np.concatenate([facts.scale for facts in per_device])
    return Facts(names=(*per_device[0].names, "device"), values=values, scale=scale)


def _by_device(question: Question, case: _Case, findings: _Findings) -> Judged:
    devices = case.rows.devices
    _require_devices(question, case)
    known = [_learn(case, number) for number in range(len(devices))]
    facts = [case.facts(number) for number in range(len(devices))]
    margins = {
        (source, about): known[source].margin(facts[about].values)
        for source in range(len(devices))
        for about in range(len(devices))
        if source != about
    }
    parts: list[tuple[Integers, Floats, Floats]] = []
    for new, device in enumerate(devices):
        others = [number for number in range(len(devices)) if number != new]
        guess = _forecast(case, known, margins, (new, others))
        target = case.rows.target[case.device_rows(new)]
        if question.shots:
            predicted, reach, left = _with_shots(question, case, guess, new, findings)
        else:
            predicted, left = guess.times(), np.isfinite(target)
            reach = _zero_shot_reach(case, known, margins, others)
        left = left & np.isfinite(target)
        rows = case.device_rows(new)[left]
        parts.append((rows, predicted[left], np.full(len(rows), reach)))
        findings.rows.append(case.row(device, case.judged(*parts[-1]).score()))
    together = [np.concatenate(found) for found in zip(*parts, strict=True)]
    judged = case.judged(together[0].astype(np.int64), together[1], together[2])
    findings.rows.append(case.row(ONLY, judged.score()))
    return judged


def _require_devices(question: Question, case: _Case) -> None:
    devices = case.rows.devices
    if len(devices) < 2:
        raise UsageError(
            f"--split device needs rows of two devices at least; this table has {len(devices)}.",
            hint="--split configuration keeps configurations apart on one device.",
        )
    bare = [device for device in devices if device not in case.sheets]
    if case.family.roofed and bare:
        raise UsageError(
            f"No datasheet of {', '.join(bare)}.",
            hint="--specs FILE gives them; docs/reference/evaluate.md has the fields.",
        )
    for number, device in enumerate(devices):
        usable = int(np.isfinite(case.rows.target[case.device_rows(number)]).sum())
        if usable < LEAST_ROWS + question.shots:
            raise ModelError(
                f"{device} has {usable} usable rows; this needs {LEAST_ROWS + question.shots}."
            )


def _learn(case: _Case, number: int) -> Known:
    rows = case.device_rows(number)
    usable = np.flatnonzero(np.isfinite(case.rows.target[rows]))
    return learn(
        case.family,
        case.sheet(case.rows.devices[number]),
        part_of(case.facts(number), usable),
        case.rows.target[rows][usable],
        _SEEDS,
    )


def _forecast(
    case: _Case, known: list[Known], margins: Margins, pair: tuple[int, list[int]]
) -> Forecast:
    new, others = pair
    sources = [
        Source(
            sheet=known[other].sheet,
            margin=margins[other, new],
            overhead=known[other].overhead,
        )
        for other in others
    ]
    return forecast(case.family, known[new].sheet, case.facts(new).scale, sources)


def _zero_shot_reach(case: _Case, known: list[Known], margins: Margins, others: list[int]) -> float:
    """The largest 90 % reach among the known devices, each predicted from the rest of them."""
    return max(_reaches(case, known, margins, others), default=float("inf"))


def _reaches(
    case: _Case, known: list[Known], margins: Margins, others: list[int]
) -> Iterator[float]:
    for held in others:
        rest = [other for other in others if other != held]
        if not rest:
            continue
        target = case.rows.target[case.device_rows(held)]
        guess = _forecast(case, known, margins, (held, rest)).times()
        missed = np.abs(np.log(guess / target))
        yield float(np.quantile(missed[np.isfinite(missed)], 0.9))


def _with_shots(
    question: Question, case: _Case, guess: Forecast, new: int, findings: _Findings
) -> tuple[Floats, float, Booleans]:
    rows = case.device_rows(new)
    target = case.rows.target[rows]
    columns = chosen(case.rows.columns, rows)
    inputs = coordinates(case.family, columns, case.facts(new), guess)
    sampled = choose(case.family, inputs, guess, question.shots, question.seed)
    samples = {int(row): float(target[row]) for row in sampled}
    corrected = correct(case.family, inputs, guess, samples)
    if case.family.verified:
        findings.picks.append(
            EvaluatePick(
                group=case.rows.devices[new],
                shots=len(sampled),
                verified=case.family.verified,
                regret=regret(corrected.predicted, target, sampled, case.family.verified),
            )
        )
    left = np.ones(len(rows), dtype=bool)
    left[sampled] = False
    return corrected.predicted, corrected.reach, left

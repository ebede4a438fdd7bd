"""The engine that judges predictors on rows that they did not see, wherever the rows come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import ModelError, TilewrightError, UsageError
from tilewright.core.events import EventSink, Note
from tilewright.core.predictions import EvaluatePick, EvaluateResult, EvaluateRow, PredictorCard
from tilewright.predict.base import Integers
from tilewright.predict.cards import Learnt, card
from tilewright.predict.family_models import FamilyModel, Predictions, TrainingSet
from tilewright.predict.metrics import Evaluation, HeldOut, together
from tilewright.predict.splits import ALL, Question, folds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """One predictor: what it learns from, and the rows of each group that it had not seen."""

    learnt: Sequence[Learnt]
    parts: Mapping[str, HeldOut]
    picks: Sequence[EvaluatePick] = ()


def evaluated(
    question: Question,
    cases: Iterable[tuple[str, Callable[[], Assessment]]],
    events: EventSink,
    noted: Sequence[str] = (),
) -> Evaluation:
    """Judge each case, a family's name and what assesses its predictor. Of `all` families those
    that too little is known of are told as notes, beside what was `noted` before.

    Raises what a case raises: of `all` families the first, where none can be judged.
    """
    rows: list[EvaluateRow] = []
    found: list[Assessment] = []
    held_out: list[HeldOut] = []
    cards: list[PredictorCard] = []
    errors: list[TilewrightError] = []
    notes = list(noted)
    for name, assess in cases:
        try:
            one = assess()
        except (ModelError, UsageError) as error:
            if question.family != ALL:
                raise
            errors.append(error)
            notes.append(f"{name}: {error.message}")
            continue
        mine = [part.row(group) for group, part in one.parts.items()]
        found.append(one)
        held_out.append(one.parts.get(ALL, next(iter(one.parts.values()))))
        cards.append(card(one.learnt, question, mine))
        rows += mine
    if not found:
        raise errors[0]
    for note in notes:
        events(Note(message=note))
    result = EvaluateResult(
        family=question.family,
        split=question.split,
        shots=question.shots,
        rows=tuple(rows),
        picks=tuple(pick for one in found for pick in one.picks),
        notes=tuple(notes),
        cards=tuple(cards),
    )
    return Evaluation(result=result, held_out=tuple(held_out))


Fit = Callable[[TrainingSet], FamilyModel]


def held_out(asked: TrainingSet, said: Predictions) -> HeldOut:
    """Rows with what a predictor that had not seen them said."""
    return HeldOut(
        family=asked.family,
        target=asked.target_name,
        unit=asked.unit,
        measured=asked.target,
        predicted=said.predicted,
        reach=said.reach,
        groups=asked.groups,
    )


def cross_validated(data: TrainingSet, fit: Fit, folds: int, seed: int) -> HeldOut:
    """Leave out one part of the configurations after the other. Raises what `fit` raises."""
    parts = folds_of(data.configurations, folds, seed)
    found = [_left_out(data, parts == part, fit) for part in range(folds) if (parts == part).any()]
    return together(found)


def unseen_networks(
    data: TrainingSet,
    members: Mapping[str, Integers],
    operators: Integers,
    fit: Fit,
    question: Question,
) -> dict[str, HeldOut]:
    """Leave out one part of the networks after the other; a network's answer is of its own rows.

    `members` are the numbers of each network's rows. `operators` is a number per row, the same for
    rows of the same operator whatever is fused to it: what a network that is left out has, no row
    has that is learnt from, be it of another network or of none. Raises what `fit` raises.
    """
    names = sorted(members)
    folds = min(question.folds, max(2, len(names)))
    parts = folds_of(np.arange(len(names)), folds, question.seed)
    found: dict[str, HeldOut] = {}
    for part in np.unique(parts):
        mine = [name for name, other in zip(names, parts, strict=True) if other == part]
        test = np.unique(np.concatenate([members[name] for name in mine]))
        gone = np.isin(operators, operators[test])
        model = fit(data.part(np.flatnonzero(~gone)))
        for name in mine:
            asked = data.part(members[name])
            found[name] = held_out(asked, model.predict(asked.features))
    return {name: found[name] for name in names}


def _left_out(data: TrainingSet, test: np.ndarray, fit: Fit) -> HeldOut:
    asked = data.part(np.flatnonzero(test))
    return held_out(asked, fit(data.part(np.flatnonzero(~test))).predict(asked.features))

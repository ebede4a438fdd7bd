"""`evaluate`: a predictor judged on a table, or on the kernels known of this device class."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

from tilewright.core.errors import UsageError, close_matches
from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.results import EvaluateResult, EvaluateRow
from tilewright.predict.base import Trees
from tilewright.predict.crossvalidation import operator_columns, unseen
from tilewright.predict.evaluation import Question, evaluate, row_of
from tilewright.predict.kernel_facts import implementation_of
from tilewright.predict.kernel_models import DEFAULT_TREES
from tilewright.predict.metrics import Score, score
from tilewright.session.modelling import Predictors


def evaluate_table(question: Question, events: EventSink) -> EvaluateResult:
    """Fit and judge; rows that were left out are told as notes. Raises what `evaluate` raises."""
    events(Stage(name="evaluate", detail=f"{question.family} by {question.split}"))
    with threadpool_limits(limits=question.threads, user_api="blas"):
        result = evaluate(question)
    for note in result.notes:
        events(Note(message=note))
    return result


def evaluate_kernels(
    predictors: Predictors, family: str, *, folds: int, seed: int, trees: Trees = DEFAULT_TREES
) -> EvaluateResult:
    """A family's own predictor on the kernels known of this device class, by configuration.

    Groups are the implementations, all of them, and what facts of the operator alone would reach.
    Raises UsageError for a family of which nothing is known, ModelError for too few rows.
    """
    known = predictors.families()
    if family not in known:
        raise UsageError(
            f"nothing was measured of a family {family!r}", hint=close_matches(family, known)
        )
    predictors.events(Stage(name="evaluate", detail=f"{family} by configuration"))
    data = predictors.training_set(family)
    found = unseen(data, folds=folds, seed=seed, trees=trees)
    rows = [_row("all", score(found.predicted_s, data.latency_s, found.reach))]
    own = implementation_of(data.table)
    for name in sorted(set(own)):
        mine = own == name
        judged = score(found.predicted_s[mine], data.latency_s[mine], found.reach[mine])
        rows.append(_row(name, judged))
    columns = operator_columns(data.table.names)
    alone = unseen(data, folds=folds, seed=seed, columns=columns, trees=trees)
    rows.append(_row("operator facts alone", score(alone.predicted_s, data.latency_s, alone.reach)))
    return EvaluateResult(family=family, split="configuration", shots=0, rows=tuple(rows))


def _row(group: str, judged: Score) -> EvaluateRow:
    return row_of("latency_s", group, judged)

"""`evaluate`: a predictor judged on a table, with as many threads as the session has."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

from tilewright.core.events import EventSink, Note, Stage
from tilewright.core.results import EvaluateResult
from tilewright.predict.evaluation import Question, evaluate


def evaluate_table(question: Question, events: EventSink) -> EvaluateResult:
    """Fit and judge; rows that were left out are told as notes. Raises what `evaluate` raises."""
    events(Stage(name="evaluate", detail=f"{question.family} by {question.split}"))
    with threadpool_limits(limits=question.threads, user_api="blas"):
        result = evaluate(question)
    for note in result.notes:
        events(Note(message=note))
    return result

"""`explain` on a device whose kernels were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.opened_measurer import Opened
from helpers.fakes.placements import altered
from helpers.records.predictor_rows import fitted, known_store, rows_of_convolutions
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import discard
from tilewright.core.forms import PLAIN
from tilewright.core.predictions import SweepResult
from tilewright.core.records import Candidate, Placement
from tilewright.graph.workload import Workload
from tilewright.insight.explaining import Explainer
from tilewright.insight.studies import study_threads
from tilewright.insight.sweeping import swept
from tilewright.kernels.spaces import search_space
from tilewright.models import ModelOptions
from tilewright.predict.forecasting import best_guesses
from tilewright.predict.modelling import Predictors

Truth = Callable[[Workload, Candidate], float | None]
OPERATOR = "op:conv2d[c=16,h=8,k=3,pad=1,out=32]"


@pytest.fixture
def predictors(tmp_path: Path) -> Iterator[Predictors]:
    with known_store(tmp_path / "t.db") as store:
        yield Predictors(
            placement=PLACEMENT,
            store=store,
            folder=tmp_path / "m",
            cache=tmp_path / "cache",
            events=discard,
            _loaded={"conv2d": fitted()},
        )


@pytest.fixture
def explainer(predictors: Predictors) -> Explainer:
    return Explainer(predictors=predictors, options=ModelOptions())


def test_an_operator_is_explained(explainer: Explainer) -> None:
    found = explainer.explain(OPERATOR)
    assert found.family == "conv2d"
    names = [factor.name for factor in found.factors]
    assert "tile_width" in names
    assert all(0 <= factor.importance <= 1.0001 for factor in found.factors)
    (width,) = (factor for factor in found.factors if factor.name == "tile_width")
    assert width.permutation_importance is not None and width.permutation_importance > 0
    assert set(width.partial_dependence) == set(width.effects)
    assert min(width.partial_dependence.values()) == 1.0
    assert {point.parameter for point in found.turning_points} <= {"c", "h", "k", "pad", "out"}
    assert any(point.parameter in ("c", "out") for point in found.turning_points)
    assert found.facts["op.padding"] == 4.0
    assert found.ratio is None


def confirming(predictors: Predictors, truth: Truth) -> tuple[Explainer, Opened]:
    measurer = Opened(truth)
    explainer = Explainer(
        predictors=predictors,
        options=ModelOptions(),
        measurers=lambda _placement, _seed: measurer,  # pyright: ignore[reportArgumentType]
    )
    return explainer, measurer


def test_turning_points_are_looked_for_in_a_few_measurements(predictors: Predictors) -> None:
    def rising_s(workload: Workload, _candidate: Candidate) -> float:
        filters = workload.result.shape[1]
        return workload.flop / 1e10 * (step if filters >= point.value else 1.0)

    explainer, measurer = confirming(predictors, rising_s)
    places = [p for p in explainer.explain(OPERATOR).turning_points if p.parameter == "out"]
    assert measurer.asked == [] and all(place.confirmed is None for place in places)
    point = next(place for place in places if 22 <= place.value <= 58)
    step = 1.5 if point.ratio > 1 else 1 / 1.5
    found = explainer.explain(OPERATOR, confirm=True).turning_points
    judged = {(p.parameter, p.value): p for p in found if p.confirmed is not None}
    assert judged["out", point.value].confirmed
    assert judged["out", point.value].measured_ratio == pytest.approx(step)
    assert not any(p.confirmed for place, p in judged.items() if place != ("out", point.value))
    assert 5 <= len(measurer.asked) == len(set(measurer.asked)) <= 36


def test_what_cannot_be_timed_is_not_judged(predictors: Predictors) -> None:
    explainer, measurer = confirming(predictors, lambda _workload, _candidate: None)
    found = explainer.explain(OPERATOR, confirm=True).turning_points
    assert measurer.asked and all(point.confirmed is None for point in found)
    key = rows_of_convolutions()[0].workload.key
    with pytest.raises(UsageError, match="no turning points to confirm"):
        explainer.explain(key, confirm=True)


def test_two_near_identical_operators(explainer: Explainer) -> None:
    found = explainer.explain(OPERATOR, OPERATOR.replace("pad=1", "pad=0"))
    assert found.ratio is not None and found.ratio > 0
    assert any(difference.fact == "op.padding" for difference in found.differences)


def test_a_task_by_its_key(explainer: Explainer) -> None:
    key = rows_of_convolutions()[0].workload.key
    found = explainer.explain(key)
    assert found.source == "exact"
    assert found.turning_points == ()


def test_what_cannot_be_explained(explainer: Explainer) -> None:
    with pytest.raises(UsageError, match="neither an operator nor a task"):
        explainer.explain("nonsense")
    with pytest.raises(ModelError, match="too few kernels of softmax") as caught:
        explainer.explain("op:softmax[shape=8x8]")
    assert "collect --op softmax" in (caught.value.hint or "")
    with pytest.raises(ModelError, match="too few kernels of elementwise") as caught:
        explainer.explain("op:relu[shape=1x8x8x8]")
    assert "collect --op relu --op sigmoid" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="no model in common"):
        explainer.explain(OPERATOR, "op:softmax[shape=8x8]")


def test_guesses_are_settings_of_the_space(predictors: Predictors) -> None:
    workload = rows_of_convolutions()[0].workload
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    guesses = best_guesses(predictors)(workload, forms)
    assert 1 <= len(guesses) <= 3
    space = search_space(workload, forms, PLACEMENT)
    assert all(space.number(candidate) is not None for candidate in guesses)


def test_no_guess_without_a_model_of_this_class(predictors: Predictors) -> None:
    workload = rows_of_convolutions()[0].workload
    forms = (PLAIN,) * (len(workload.arguments) + 1)
    bare = replace(predictors, _loaded={})
    unfitted = best_guesses(bare, fitting=False)
    assert unfitted(workload, forms) == ()
    model = predictors.model("conv2d")
    assert model is not None
    borrowed = replace(predictors, _loaded={"conv2d": replace(model, origin="another")})
    assert best_guesses(borrowed)(workload, forms) == ()


def sweeping(
    predictors: Predictors, operator: str, parameter: str, values: tuple[int, ...] = ()
) -> SweepResult:
    measurer = Opened(lambda workload, _candidate: workload.flop / 1e10 or None)
    return swept(
        operator,
        parameter,
        values,
        predictors=predictors,
        options=ModelOptions(),
        measurers=lambda _placement, _seed: measurer,  # pyright: ignore[reportArgumentType]
    )


def test_an_operator_along_its_padding(predictors: Predictors) -> None:
    found = sweeping(predictors, OPERATOR, "pad")
    assert [row.value for row in found.rows] == [0, 1, 2, 3]
    times = [row.latency_s for row in found.rows]
    assert None not in times and times == sorted(times)  # pyright: ignore[reportArgumentType]
    assert all(row.predicted_s > 0 and row.roof_s > 0 for row in found.rows)
    assert found.rows[0].facts["op.border_share"] == 0.0
    assert found.rows[3].facts["op.border_share"] > 0.5
    assert len(predictors.store.stored_measurements(placement=PLACEMENT.key)) > 60


@pytest.mark.parametrize(("parameter", "values"), [("pad", [0, 1, 2, 3]), ("stride", [1, 2])])
def test_an_operator_along_a_number_that_was_left_out(
    predictors: Predictors, parameter: str, values: list[int]
) -> None:
    found = sweeping(predictors, "op:conv2d[c=8,h=8,out=8,k=3]", parameter)
    assert [row.value for row in found.rows] == values
    assert len({row.roof_s for row in found.rows}) == len(values)


def test_what_cannot_be_swept(predictors: Predictors) -> None:
    with pytest.raises(UsageError, match="no single operator"):
        sweeping(predictors, "zoo:mlp", "pad")
    with pytest.raises(UsageError, match="no number 'strides'") as caught:
        sweeping(predictors, OPERATOR, "strides")
    assert "pad" in (caught.value.hint or "")


def test_numbers_of_threads() -> None:
    times = {16: 2.0, 14: 1.0, 12: 1.5, 10: 3.0, 8: 4.0}

    def with_threads(count: int) -> Placement:
        return altered(PLACEMENT, threads=count)

    found = study_threads(
        "m", with_threads, 16, lambda placement: times[placement.resources.threads], discard
    )
    assert [(t.threads, t.latency_s) for t in found.measured] == list(times.items())
    assert found.best_threads == 14
    assert found.loss_of_all == pytest.approx(1.0)

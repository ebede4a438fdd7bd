"""Verbs on predictors: what they learn from, what they say, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.collect import collector
from tilewright.collect.design import Design, circumstances_of, collect_request
from tilewright.core.arguments import (
    Text,
    count_of,
    error_of,
    one_of,
    path_of,
    path_or_none,
    text_of,
    text_or_none,
    texts_of,
    truth_of,
)
from tilewright.core.budget import parse_budget
from tilewright.core.events import Stage
from tilewright.core.predictions import (
    CollectResult,
    EvaluateResult,
    ExplainResult,
    FitResult,
    PredictResult,
    ThreadsResult,
)
from tilewright.hardware.device import local_placement, parse_target
from tilewright.hardware.gpus import is_cuda
from tilewright.insight import cuda_explaining, evaluating, explaining, thread_counts
from tilewright.insight.evaluating import EvaluateRequest
from tilewright.measure.targeting import placement_of, usable_placement
from tilewright.models import ModelOptions
from tilewright.models.given import Model, several_models
from tilewright.models.loaded import options_of
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict import energies, forecasting, modelling
from tilewright.predict import table as tables
from tilewright.predict.metrics import Evaluation
from tilewright.predict.splits import Split
from tilewright.session.networks import BUDGET
from tilewright.session.opened import Opened
from tilewright.store.known_candidates import MAX_ERROR, checked_settings

Names = str | Sequence[str]
"""One name, or several."""


class ForecastVerbs(Opened):
    """`collect`, `fit`, `predict`, `explain`, `evaluate`."""

    def collect(
        self,
        families: Names = (),
        models: Model | Sequence[Model] = (),
        *,
        samples: int = 200,
        design: Design | None = None,
        budget: str | float | None = None,
        options: ModelOptions | None = None,
    ) -> CollectResult:
        """Measure operators for predictors to learn from; see `tilewright collect --help`."""
        said = options_of(options, self.seed)
        request = collect_request(
            texts_of(families, "families"),
            [self._given(each, said).argument for each in several_models(models)],
            samples=count_of(samples, "samples", 1),
            design=Design() if design is None else one_of(design, "design", Design, "a Design(…)"),
            budget=parse_budget(BUDGET if budget is None else budget),
            options=said,
        )
        targets = [
            usable_placement(placement_of(self._target, self._tracker, count))
            for count in request.design.threads or (self._threads,)
        ]
        return collector.collector_of(
            circumstances_of(targets, request.design),
            self.store,
            self.events,
            text_or_none(self.meter, "meter"),
        ).run(request)

    def fit(self, families: Names = (), metrics: Names = ()) -> FitResult:
        """Learn predictors from what was measured; see `tilewright fit --help`."""
        return energies.fit_metrics(
            self.placement,
            self.store,
            self.events,
            texts_of(families, "families"),
            texts_of(metrics, "metrics"),
        )

    def predict(
        self,
        model: Model,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        max_error: float = MAX_ERROR,
        metrics: Names = (),
    ) -> PredictResult:
        """What a network will take, without running it; see `tilewright predict --help`."""
        said, chosen = options_of(options, self.seed), checked_settings(settings)
        allowed, wanted = error_of(max_error), energies.known_metrics(texts_of(metrics, "metrics"))
        argument = self._given(model, said).argument
        forecaster = forecasting.forecaster_of(self.placement, self.records, self.events, allowed)
        self.events(Stage(name="import", detail=argument))
        return forecaster.network(prepare(argument, said, self.placement), chosen, wanted)

    def predict_table(
        self,
        table: Text,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        max_error: float = MAX_ERROR,
        metrics: Names = (),
    ) -> PredictResult:
        """The operators of a .csv or .parquet with a column `operator` of `op:…` texts."""
        said, chosen = options_of(options, self.seed), checked_settings(settings)
        allowed, wanted = error_of(max_error), texts_of(metrics, "metrics")
        texts = tables.read_texts(path_of(table, "table"), "operator")
        networks = ((text, prepare_outline(text, said, self.placement)) for text in texts)
        return forecasting.forecaster_of(
            self.placement, self.records, self.events, allowed
        ).operators(networks, chosen, wanted)

    def explain(
        self,
        name: str,
        *,
        versus: str | None = None,
        confirm: bool = False,
        options: ModelOptions | None = None,
    ) -> ExplainResult:
        """Why an operator is as fast as it is; see `tilewright explain --help`."""
        first, other = text_of(name, "name"), text_or_none(versus, "versus")
        measured, said = truth_of(confirm, "confirm"), options_of(options, self.seed)
        if is_cuda(self._target):
            explainer = cuda_explaining.cuda_explainer(
                self._target, self._tracker, self.events, said
            )
            return explainer.explain(first, other, confirm=measured)
        explainer = explaining.Explainer(
            predictors=modelling.predictors_of(
                self.placement, self.store if measured else self.records, self.events
            ),
            options=said,
        )
        return explainer.explain(first, other, confirm=measured)

    def best_threads(
        self,
        model: Model,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        max_error: float = MAX_ERROR,
    ) -> ThreadsResult:
        """The fastest of up to five numbers of threads, each measured."""
        said, chosen = options_of(options, self.seed), checked_settings(settings)
        argument = self._given(model, said).argument
        return thread_counts.study_threads(
            argument,
            lambda count: parse_target(self._target, count),
            self.placement.resources.threads,
            thread_counts.network_timer(argument, said, self.records, chosen, error_of(max_error)),
            self.events,
        )

    def evaluate(
        self,
        table: Text | None = None,
        *,
        family: str = "all",
        split: Split = "configuration",
        folds: int = 5,
        specs: Text | None = None,
        shots: int = 0,
    ) -> EvaluateResult:
        """Judge predictors on a table of measurements, or on the kernels known of this device
        class; see `tilewright evaluate --help`."""
        return self.judge(
            EvaluateRequest(
                table=path_or_none(table, "table"),
                family=family,
                split=split,
                folds=folds,
                specs=path_or_none(specs, "specs"),
                shots=shots,
            )
        ).result

    def judge(self, request: EvaluateRequest) -> Evaluation:
        """As `evaluate`, with the predictions of every row, which plots and cards want."""
        return evaluating.judge(
            one_of(request, "request", EvaluateRequest, "an EvaluateRequest(table=…)"),
            lambda: modelling.predictors_of(self.placement, self.records, self.events),
            self.events,
            seed=self.seed,
            threads=local_placement(self._threads).resources.threads,
        )

"""Verbs about predictors: measure for them, fit them, ask them, judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tilewright.collect import collector
from tilewright.collect.design import Design, circumstances_of, collect_request
from tilewright.core.arguments import (
    Error,
    Text,
    count_of,
    one_of,
    path_of,
    path_or_none,
    text_of,
    text_or_none,
    texts_of,
    truth_of,
)
from tilewright.core.budget import parse_budget
from tilewright.core.errors import UsageError
from tilewright.core.events import Stage
from tilewright.core.planning import PlanningData
from tilewright.core.predictions import (
    CollectResult,
    EvaluateResult,
    ExplainResult,
    FitResult,
    PredictResult,
    ThreadsResult,
)
from tilewright.deploy.wishes import BUDGET
from tilewright.hardware.device import local_placement
from tilewright.hardware.gpus import is_cuda
from tilewright.insight import evaluating, explaining, studies
from tilewright.insight.cuda_explaining import cuda_explainer
from tilewright.measure import targeting
from tilewright.measure.targeting import allowing, placement_of, usable_placement
from tilewright.models import ModelOptions
from tilewright.models.given import Model, several_models
from tilewright.plan.planning_data import (
    PlanningRequest,
    placements_of,
    planning_data,
)
from tilewright.plan.preparation import prepare, prepare_outline
from tilewright.predict import forecasting, modelling, powers, tables
from tilewright.predict.core_counts import forecaster_on_cores
from tilewright.predict.evaluation import EvaluateRequest, Evaluation, Split
from tilewright.serving.handoffs import part_handoffs
from tilewright.session.opened import Opened
from tilewright.store.known_candidates import allowed_error, checked_settings

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
        """Measure operators in many configurations and settings, for predictors to learn from.

        `families` are names such as "conv2d", or "all"; `models` are networks whose own tasks are
        measured; one of the two must be given. `samples` candidates are measured per family.
        `design` says which threads, types and states of the caches are varied, and how
        configurations are chosen. `budget` is the total of this collection, including earlier runs,
        as for `optimize`. A repeated call continues where the last one stopped.
        """
        said = self._said(options)
        request = collect_request(
            texts_of(families, "families"),
            [self._given(each, said).argument for each in several_models(models)],
            samples=count_of(samples, "samples", 1),
            design=Design() if design is None else one_of(design, "design", Design, "a Design(…)"),
            budget=parse_budget(BUDGET if budget is None else budget),
            options=said,
        )
        targets = [
            allowing(usable_placement(placement_of(self._target, self._tracker, count)), said)
            for count in request.design.threads or (self._threads,)
        ]
        return collector.collector_of(
            circumstances_of(targets, request.design),
            self.store,
            self.events,
            text_or_none(self.meter, "meter"),
            part_handoffs,
        ).run(request)

    def fit(self, families: Names = (), metrics: Names = ()) -> FitResult:
        """Fit predictors to measurements of this class of device and to those that ship with
        tilewright.

        `families` are those of operators, by default all; `metrics` are "latency" and "power"
        (energy is power × latency), by default both. `predict` fits by itself what is missing.
        """
        return powers.fit_metrics(
            self.foreseen,
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
        max_error: Error | None = None,
        metrics: Names = (),
    ) -> PredictResult:
        """Predict time, memory, power and energy of a network, without compiling or running it.

        `settings` is "default", "best" or "shipped"; `metrics` are among "latency", "power",
        "energy" and "memory", by default all. Implementations whose error bound is above
        `max_error` are not used. With a precision in `options` the network is predicted in that.
        Each kernel's time has a source: exact (this kernel was measured), interpolated (kernels of
        similar sizes, or this one on other numbers of cores, were measured), model (a fitted
        model), facts (the kernel's facts and a GPU's datasheet), or roofline (a lower bound).
        """
        said, chosen = self._said(options, max_error), checked_settings(settings)
        allowed = allowed_error(max_error, said.precision)
        wanted = powers.known_metrics(texts_of(metrics, "metrics"))
        argument, forecaster = self._given(model, said).argument, self._forecaster(said, allowed)
        self.events(Stage(name="import", detail=argument))
        there = forecaster.predictors.placement
        return forecaster.network(prepare(argument, said, there), chosen, wanted)

    def _forecaster(self, said: ModelOptions, allowed: float) -> forecasting.Forecaster:
        """What answers for the session's threads, of which a CPU here need not have so many."""
        asked = self._target, self._tracker, self._threads, lambda: self.foreseen
        usual, placement = (allowing(p, said) for p in targeting.foreseen_placements(*asked))
        return forecaster_on_cores(usual, placement, self.records, self.events, allowed)

    def planning_data(
        self,
        model: Model,
        devices: Names,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        max_error: Error | None = None,
    ) -> PlanningData:
        """Tell what a planner needs of a network: each call's time on each device, and transfers.

        `devices` are targets, such as "llvm" and "cuda -model=H100"; they need not be here. The
        other arguments are those of `predict`.
        """
        said = self._said(options, max_error)
        argument = self._given(model, said).argument
        allowed = allowed_error(max_error, said.precision)
        asked = PlanningRequest(said, checked_settings(settings), allowed)
        places = placements_of(texts_of(devices, "devices"), self._tracker, self._threads)
        return planning_data(argument, places, asked, self.records, self.events)

    def predict_table(
        self,
        table: Text,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        max_error: Error | None = None,
        metrics: Names = (),
    ) -> PredictResult:
        """Predict each operator of a table: a .csv or .parquet with `op:…` texts in `operator`.

        The other arguments are those of `predict`. Raises `ModelError` for a file that is no such
        table.
        """
        said, chosen = self._said(options, max_error), checked_settings(settings)
        allowed = allowed_error(max_error, said.precision)
        wanted, forecaster = texts_of(metrics, "metrics"), self._forecaster(said, allowed)
        texts = tables.read_texts(path_of(table, "table"), "operator")
        there = forecaster.predictors.placement
        networks = ((text, prepare_outline(text, said, there)) for text in texts)
        return forecaster.operators(networks, chosen, wanted)

    def explain(
        self,
        name: str,
        *,
        versus: str | None = None,
        confirm: bool = False,
        implementation: str = "",
        options: ModelOptions | None = None,
    ) -> ExplainResult:
        """Say which settings an operator's time depends on, and at which sizes it jumps.

        `name` is an `op:…` text or a task's key; `versus` is another operator to compare it with.
        Times are predicted; with `confirm` some are measured too. On a session with `target="cuda
        …"` the answer is about the kernels of the operator in default settings, of one
        `implementation` where that is named, and nothing is measured.
        """
        first, other = text_of(name, "name"), text_or_none(versus, "versus")
        measured, said = truth_of(confirm, "confirm"), self._said(options)
        kernels = text_of(implementation, "implementation")
        if is_cuda(self._target):
            gpu = cuda_explainer(self._target, self._tracker, self.events, said, kernels)
            return gpu.explain(first, other, confirm=measured)
        if kernels:
            raise UsageError("--implementation is for GPUs: on a CPU all of them are explained.")
        place, store = allowing(self.placement, said), self.store if measured else self.records
        explainer = explaining.Explainer(
            predictors=modelling.predictors_of(place, store, self.events),
            options=said,
        )
        return explainer.explain(first, other, confirm=measured)

    def best_threads(
        self,
        model: Model,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        max_error: Error | None = None,
    ) -> ThreadsResult:
        """Measure a network with up to five numbers of threads, and name the fastest.

        The numbers are all threads of the session, and 7/8, 3/4, 5/8 and half of them.
        """
        said, chosen = self._said(options, max_error), checked_settings(settings)
        argument = self._given(model, said).argument
        return studies.study_threads(
            argument,
            lambda count: allowing(placement_of(self._target, self._tracker, count), said),
            self.placement.resources.threads,
            partial(
                studies.network_time_s,
                model=argument,
                options=said,
                store=self.records,
                settings=chosen,
                max_error=allowed_error(max_error, said.precision),
            ),
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
        """Judge a predictor on rows that it was not fitted to.

        The rows are those of `table` (.csv or .parquet, with the columns of `family` in
        docs/reference/evaluate.md), or without one the kernels known of this class of device.
        `split` says what is kept aside: "configuration", "device", or of our kernels "network".
        `folds` is the number of parts of the configurations, `shots` how many rows of the device
        kept aside the predictor may learn from, `specs` a JSON file with the datasheets of devices.
        Errors are |predicted ÷ measured − 1|, as fractions.
        """
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
        """Do what `evaluate` does, and return the prediction of every row, too, for plots."""
        return evaluating.judge(
            replace(
                one_of(request, "request", EvaluateRequest, "an EvaluateRequest(table=…)"),
                seed=self.seed,
            ),
            lambda: modelling.predictors_of(self.foreseen, self.records, self.events),
            self.events,
            local_placement(self._threads).resources.threads,
        )

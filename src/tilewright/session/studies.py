"""Verbs that run an experiment: about tuners, about levels, or about one operator."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.arguments import (
    Text,
    count_of,
    counts_of,
    one_of,
    path_or_none,
    text_of,
    texts_of,
)
from tilewright.core.budget import parse_budget
from tilewright.core.predictions import SweepResult
from tilewright.core.results import SubgraphStudyResult, TunerStudyResult
from tilewright.core.sufficient_cores import CoresResult
from tilewright.hardware.gpus import is_cuda
from tilewright.insight import core_studies, cuda_studies, studies, sweeping
from tilewright.insight.core_design import CoresDesign
from tilewright.insight.cuda_explaining import cuda_explainer
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions
from tilewright.models.given import Model
from tilewright.predict.modelling import predictors_of
from tilewright.search.tuners.registry import tuner_factory
from tilewright.session.opened import Opened


class StudyVerbs(Opened):
    """`study tuners`, `study subgraph`, `study padding`, `study cores`."""

    def study_tuners(
        self,
        *,
        sweep: Text | None = None,
        seeds: int = 5,
        tuners: str | Sequence[str] = (),
        out: Text | None = None,
    ) -> TunerStudyResult:
        """Compare tuners on stored sweeps, without measuring.

        `sweep` is a file, by default the sweeps of the package; `tuners` are names, by default all
        that need no compiler; each runs `seeds` times on each sweep. Regret is how much slower the
        setting that a tuner chose is than the best one. A page of figures is written to the folder
        `out`, where one is given.
        """
        folder = path_or_none(out, "out")
        result = studies.study_tuners(
            texts_of(tuners, "tuners"),
            path_or_none(sweep, "sweep"),
            seeds=count_of(seeds, "seeds"),
            processes=self._threads or len(self.placement.binding.cpus),
            events=self.events,
        )
        if folder is not None:
            studies.write_page(folder, result)
        return result

    def study_subgraph(
        self,
        model: Model,
        *,
        budget: str | float | None = None,
        tuner: str = "default",
        options: ModelOptions | None = None,
    ) -> SubgraphStudyResult:
        """Tune a network as single operators and as fused subgraphs, and time both in turn.

        `budget` is for both together ("4m" by default).
        """
        total = parse_budget("4m" if budget is None else budget)
        tuner_factory(text_of(tuner, "tuner"))
        said = self._said(options)
        return studies.SubgraphStudy(
            placement=allowing(self.placement, said),
            store=self.store,
            events=self.events,
            seed=self.seed,
            tuner=tuner,
        ).run(self._given(model, said).argument, said, total)

    def study_padding(
        self,
        operator: str,
        *,
        parameter: str = "pad",
        values: int | Sequence[int] = (),
        layout: str = "NCHW",
        implementation: str = "",
        options: ModelOptions | None = None,
    ) -> SweepResult:
        """Measure and predict an `op:…` at several `values` of one of its parameters.

        The operator is in default settings. Without `values` they are 0 to 3, or lie around the
        value that the operator has. On a session with `target="cuda …"` the prediction is that of a
        model of waves, kernels are those of one `implementation` where that is named, images may
        lie in the `layout` "NHWC", and nothing is measured where the GPU is not here.
        """
        name, steps = text_of(operator, "operator"), counts_of(values, "values")
        said, kernels = self._said(options), text_of(implementation, "implementation")
        lying = text_of(layout, "layout")
        if is_cuda(self._target):
            return cuda_studies.swept_on_gpu(
                name,
                text_of(parameter, "parameter"),
                steps,
                explainer=cuda_explainer(
                    self._target, self._tracker, self.events, said, kernels, layout=lying
                ),
                store=lambda: self.store,
            )
        sweeping.require_cpu_kernels(kernels, lying)
        return sweeping.swept(
            name,
            text_of(parameter, "parameter"),
            steps,
            predictors=predictors_of(allowing(self.placement, said), self.store, self.events),
            options=said,
        )

    def study_cores(
        self,
        model: Model,
        *,
        design: CoresDesign | None = None,
        budget: str | float | None = None,
        out: Text | None = None,
        options: ModelOptions | None = None,
    ) -> CoresResult:
        """Tell from how many cores on more do not pay, beside neighbours and at other clocks.

        `model` is an `op:…` text, or a network, whose tasks are studied; `design` is the grid of
        cores, neighbours and controls. What this machine has cores for is measured within `budget`
        ("2m" by default, 0 for nothing), the rest predicted from the time on one core. A page of
        figures is written to the folder `out`, where one is given.
        """
        said, folder = self._said(options), path_or_none(out, "out")
        grid = one_of(design or CoresDesign(), "design", CoresDesign, "a CoresDesign(…)")
        total = parse_budget("2m" if budget is None else budget)
        place, name = allowing(self.placement, said), self._given(model, said).argument
        study = core_studies.CoresStudy(placement=place, store=self.store, events=self.events)
        return study.run(name, said, grid, total, folder)

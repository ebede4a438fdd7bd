"""The facade: one object, one method per verb. The work is in the modules beside this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tilewright.core.events import EventSink, discard
from tilewright.core.records import Device
from tilewright.core.results import (
    CompareResult,
    DoctorResult,
    EvaluateResult,
    ImportResult,
    ProfileResult,
    SolveResult,
    SubgraphStudyResult,
    TargetRow,
    TunerStudyResult,
)
from tilewright.core.settings import read_settings
from tilewright.graph.network import Array
from tilewright.hardware.device import local_device, parse_target
from tilewright.hardware.gpus import is_cuda
from tilewright.models import ModelOptions
from tilewright.session.outcome import OptimizedNetwork, default_folder
from tilewright.store import open_store
from tilewright.store.database import SqliteStore

if TYPE_CHECKING:
    import polars

    from tilewright.core.predictions import (
        CollectResult,
        ExplainResult,
        FitResult,
        PredictResult,
        SweepResult,
        ThreadsResult,
    )
    from tilewright.predict.judged import Evaluation
    from tilewright.session.collecting.design import Design
    from tilewright.session.levels import GraphLevel
    from tilewright.session.predicting.evaluating import EvaluateRequest, KernelSplit
    from tilewright.session.requests import OptimizeRequest

PEERS = ("onnxruntime", "openvino", "torch")
MAX_ERROR = 1e-4
"""Allowed error of a network's outputs, relative to the largest value of each."""


class Session:
    """Work on one device with one database. Use it as a context manager or call `close`.

    `meter` is the name of the meter by which `collect` measures energy, too; None for none.
    `verify` says whether files of artifacts are checked by their hashes.
    """

    def __init__(
        self,
        *,
        db: Path | None = None,
        target: str = "llvm",
        tracker: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        events: EventSink = discard,
    ) -> None:
        self.seed = seed
        self.events = events
        self.meter: str | None = None
        self.verify = True
        self._target = target
        self._tracker = tracker
        self._threads = threads
        self._path = db or read_settings().database
        self._device: Device | None = None
        self._store: SqliteStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
            self._store = None

    @property
    def device(self) -> Device:
        """The device kernels are built for and run on."""
        if self._device is None:
            from tilewright.session.targeting import device_of, usable_device

            self._device = usable_device(device_of(self._target, self._tracker, self._threads))
        return self._device

    @property
    def store(self) -> SqliteStore:
        """The database, opened on first use."""
        if self._store is None:
            self._store = open_store(self._path)
        return self._store

    def optimize(
        self,
        model: str | Path,
        *,
        budget: str | float = "10m",
        out: Path | None = None,
        options: ModelOptions | None = None,
        max_error: float = MAX_ERROR,
    ) -> OptimizedNetwork:
        """Tune, compile, check and time a network; see `tilewright optimize --help`."""
        from tilewright.session.levels import GraphLevel

        request = self._request(str(model), budget, out, options, max_error)
        return self._optimized(replace(request, level=GraphLevel()))

    def tune(
        self,
        model: str | Path,
        *,
        level: str | GraphLevel = "subgraph",
        tuner: str = "default",
        budget: str | float = "10m",
        out: Path | None = None,
        options: ModelOptions | None = None,
    ) -> OptimizedNetwork:
        """As `optimize`, with a tuner and a level of one's choice; see `tilewright tune --help`."""
        from tilewright.session.levels import checked_level
        from tilewright.tune.tuners import tuner_factory

        tuner_factory(tuner)
        request = self._request(str(model), budget, out, options, MAX_ERROR)
        return self._optimized(
            replace(request, tuner=tuner, level=checked_level(level), command="tune")
        )

    def _request(
        self,
        model: str,
        budget: str | float,
        out: Path | None,
        options: ModelOptions | None,
        max_error: float,
    ) -> OptimizeRequest:
        from tilewright.session.requests import OptimizeRequest, checked_error
        from tilewright.tune.budget import parse_budget

        return OptimizeRequest(
            model=model,
            options=options or ModelOptions(seed=self.seed),
            budget=parse_budget(budget),
            folder=out or default_folder(model),
            max_error=checked_error(max_error),
            seed=self.seed,
        )

    def _optimized(self, request: OptimizeRequest) -> OptimizedNetwork:
        from tilewright.session.optimizing import Optimizer

        result = Optimizer(self.device, self.store, self.events).run(request)
        network = OptimizedNetwork(result=result, folder=request.folder)
        network.write_report()
        network.write_drawing()
        return network

    def solve(self, file: str | Path, solver: str = "auto") -> SolveResult:
        """Solve a saved graph problem; see `tilewright solve --help`."""
        from tilewright.session.solving import solve_file

        return solve_file(Path(file), solver)

    def evaluate(
        self,
        table: str | Path | None = None,
        *,
        family: str = "all",
        split: KernelSplit = "configuration",
        folds: int = 5,
        specs: Path | None = None,
        shots: int = 0,
    ) -> EvaluateResult:
        """Judge predictors on a table of measurements, or on the kernels known of this device
        class; see `tilewright evaluate --help`."""
        from tilewright.session.predicting.evaluating import EvaluateRequest

        path = None if table is None else Path(table)
        request = EvaluateRequest(
            table=path, family=family, split=split, folds=folds, specs=specs, shots=shots
        )
        return self.judge(request).result

    def judge(self, request: EvaluateRequest) -> Evaluation:
        """As `evaluate`, with the predictions of every row, which plots and cards want."""
        from tilewright.session.predicting.evaluating import Workplace, judge
        from tilewright.session.predicting.modelling import predictors_of

        place = Workplace(
            predictors=lambda: predictors_of(self.device, self.store, self.events),
            events=self.events,
            seed=self.seed,
            threads=local_device(self._threads).threads,
        )
        return judge(request, place)

    def study_tuners(
        self,
        *,
        sweep: Path | None = None,
        seeds: int = 5,
        tuners: Sequence[str] = (),
        out: Path | None = None,
    ) -> TunerStudyResult:
        """Regret of tuners on stored sweeps, with a page of figures in the folder `out`; see
        `tilewright study tuners --help`."""
        from tilewright.session.tuner_study import TunerStudy, write_page

        study = TunerStudy(
            events=self.events,
            seeds=seeds,
            processes=self._threads or len(self.device.cpus),
            sweep=sweep,
            names=tuple(tuners),
        )
        result = study.run()
        if out is not None:
            write_page(out, result)
        return result

    def study_subgraph(
        self,
        model: str | Path,
        *,
        budget: str | float = "4m",
        tuner: str = "default",
        options: ModelOptions | None = None,
    ) -> SubgraphStudyResult:
        """Tune at both levels and compare; see `tilewright study subgraph --help`."""
        from tilewright.session.subgraphs import SubgraphStudy
        from tilewright.tune.budget import parse_budget
        from tilewright.tune.tuners import tuner_factory

        total = parse_budget(budget)
        tuner_factory(tuner)
        study = SubgraphStudy(
            device=self.device, store=self.store, events=self.events, seed=self.seed, tuner=tuner
        )
        return study.run(str(model), options or ModelOptions(seed=self.seed), total)

    def profile(
        self,
        model: str | Path,
        *,
        options: ModelOptions | None = None,
        settings: str = "best",
        meter: str | None = None,
        memory: bool = False,
    ) -> ProfileResult:
        """Time every task and the whole network.

        With a `meter` (`auto`, or another name of docs/reference/meters.md) also its energy, with
        `memory` its peak memory.
        """
        from tilewright.hardware.meters import named_meter
        from tilewright.session.choices import checked_settings
        from tilewright.session.profiling import Profiler

        profiler = Profiler(
            device=self.device,
            store=self.store,
            events=self.events,
            seed=self.seed,
            meter=None if meter is None else named_meter(meter),
            memory=memory,
            verify=self.verify,
        )
        chosen = checked_settings(settings)
        return profiler.run(str(model), options or ModelOptions(seed=self.seed), chosen)

    def collect(
        self,
        families: Sequence[str] = (),
        models: Sequence[str] = (),
        *,
        samples: int = 200,
        design: Design | None = None,
        budget: str | float = "10m",
        options: ModelOptions | None = None,
    ) -> CollectResult:
        """Measure operators for predictors to learn from; see `tilewright collect --help`."""
        from tilewright.session.collecting.circumstances import places_of
        from tilewright.session.collecting.collector import collector_of
        from tilewright.session.collecting.design import Design, collect_request
        from tilewright.session.targeting import device_of, usable_device
        from tilewright.tune.budget import parse_budget

        request = collect_request(
            families,
            models,
            samples=samples,
            design=design or Design(),
            budget=parse_budget(budget),
            options=options or ModelOptions(seed=self.seed),
        )
        counts = request.design.threads or (self._threads,)
        targets = [device_of(self._target, self._tracker, count) for count in counts]
        places = places_of([usable_device(target) for target in targets], request.design)
        return collector_of(places, self.store, self.events, self.meter).run(request)

    def fit(self, families: Sequence[str] = (), metrics: Sequence[str] = ()) -> FitResult:
        """Learn predictors from what was measured; see `tilewright fit --help`."""
        from tilewright.session.predicting.energies import fit_metrics

        return fit_metrics(self.device, self.store, self.events, families, metrics)

    def predict(
        self,
        model: str | Path,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        metrics: Sequence[str] = (),
    ) -> PredictResult:
        """What a network will take, without running it; see `tilewright predict --help`."""
        from tilewright.session.choices import checked_settings
        from tilewright.session.predicting.forecasting import forecaster_of

        forecaster = forecaster_of(self.device, self.store, self.events)
        chosen = options or ModelOptions(seed=self.seed)
        return forecaster.network(str(model), chosen, checked_settings(settings), metrics)

    def predict_table(
        self,
        table: str | Path,
        *,
        options: ModelOptions | None = None,
        settings: str = "default",
        metrics: Sequence[str] = (),
    ) -> PredictResult:
        """The operators of a .csv or .parquet with a column `operator` of `op:…` texts."""
        from tilewright.predict.table import read_texts
        from tilewright.session.choices import checked_settings
        from tilewright.session.predicting.forecasting import forecaster_of

        texts = read_texts(Path(table), "operator")
        forecaster = forecaster_of(self.device, self.store, self.events)
        chosen = options or ModelOptions(seed=self.seed)
        return forecaster.operators(texts, chosen, checked_settings(settings), metrics)

    def study_padding(
        self,
        operator: str,
        *,
        parameter: str = "pad",
        values: Sequence[int] = (),
        options: ModelOptions | None = None,
    ) -> SweepResult:
        """An operator along one parameter, measured and predicted; see `tilewright study padding
        --help`."""
        from tilewright.session.predicting.modelling import predictors_of
        from tilewright.session.predicting.sweeping import Sweeping

        sweeping = Sweeping(
            device=self.device,
            predictors=predictors_of(self.device, self.store, self.events),
            events=self.events,
            options=options or ModelOptions(seed=self.seed),
        )
        return sweeping.run(operator, parameter, tuple(values))

    def explain(
        self,
        name: str,
        *,
        versus: str | None = None,
        confirm: bool = False,
        options: ModelOptions | None = None,
    ) -> ExplainResult:
        """Why an operator is as fast as it is; see `tilewright explain --help`."""
        if is_cuda(self._target):
            from tilewright.session.predicting.cuda_explaining import cuda_explainer

            explainer = cuda_explainer(self._target, self._tracker, self.events, options)
            return explainer.explain(name, versus, confirm=confirm)
        from tilewright.session.predicting.explaining import Explainer
        from tilewright.session.predicting.modelling import predictors_of

        explainer = Explainer(
            device=self.device,
            predictors=predictors_of(self.device, self.store, self.events),
            events=self.events,
            options=options or ModelOptions(seed=self.seed),
        )
        return explainer.explain(name, versus, confirm=confirm)

    def best_threads(
        self, model: str | Path, *, options: ModelOptions | None = None, settings: str = "default"
    ) -> ThreadsResult:
        """The fastest of up to five numbers of threads, each measured."""
        from tilewright.session.choices import checked_settings
        from tilewright.session.predicting.thread_counts import network_timer, study_threads

        chosen = options or ModelOptions(seed=self.seed)
        return study_threads(
            str(model),
            lambda count: parse_target(self._target, count),
            self.device.threads,
            network_timer(str(model), chosen, self.store, checked_settings(settings)),
            self.events,
        )

    def compare(
        self,
        models: Sequence[str],
        *,
        peers: Sequence[str] = PEERS,
        options: ModelOptions | None = None,
        settings: str = "best",
        rounds: int = 5,
    ) -> CompareResult:
        """Time networks in turn with their peers."""
        from tilewright.session.choices import checked_settings
        from tilewright.session.comparing import Comparer

        comparer = Comparer(
            device=self.device,
            store=self.store,
            events=self.events,
            seed=self.seed,
            peers=tuple(peers),
            settings=checked_settings(settings),
            rounds=rounds,
            verify=self.verify,
        )
        return comparer.run(models, options or ModelOptions(seed=self.seed))

    def run(self, artifact: str | Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a compiled network once, by the ONNX file's names."""
        from tilewright.session.artifact import load

        return load(artifact, threads=self._threads, verify=self.verify).run(inputs)

    def show(self, task: str, what: str = "graph") -> str:
        """What a task's kernel became: its graph, its scheduled TIR, or its assembly."""
        from tilewright.session.showing import show
        from tilewright.session.targeting import describable_device, device_of

        device = describable_device(device_of(self._target, self._tracker, self._threads))
        return show(task, what, device, self.store, self.seed, verify=self.verify)

    def import_file(
        self,
        path: str | Path,
        kind: str | None = None,
        *,
        task: str | None = None,
        target: str | None = None,
    ) -> ImportResult:
        """Take in records of another database or another program; see `tilewright db import`."""
        from tilewright.session.interchanging import ImportRequest, import_file

        device = None if target is None else parse_target(target, self._threads)
        request = ImportRequest(path=Path(path), kind=kind, task=task, device=device)
        return import_file(request, self.store, lambda: self.device)

    def export_file(self, path: str | Path, kind: str | None = None) -> int:
        """Write the database to a file, in a form that another program reads; returns a count."""
        from tilewright.session.interchanging import export_file

        return export_file(Path(path), kind, self.store, lambda: self.device)

    def measurements(self) -> polars.DataFrame:
        """Everything measured so far, one row per measurement, as a polars frame."""
        return self.store.frame()

    def doctor(self) -> DoctorResult:
        """Check the installation and the machine."""
        from tilewright.session.doctoring import examine

        return examine(self._path)

    def targets(self) -> tuple[TargetRow, ...]:
        """What `--target` takes here."""
        from tilewright.session.targeting import target_rows

        return target_rows(self._threads)

"""A session that answers from memory, so that the command line is tested alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from helpers.fakes import forecasts
from tilewright.core.comparisons import CompareResult, CompareRow
from tilewright.core.events import Event, EventSink, Note, discard
from tilewright.core.neighbours import KernelVersion, TaskVersions, VersionsResult
from tilewright.core.planning import PlanningData
from tilewright.core.predictions import (
    CollectResult,
    EvaluatePick,
    EvaluateResult,
    EvaluateRow,
    ExplainResult,
    FitResult,
    PredictResult,
    SweepResult,
    ThreadsResult,
)
from tilewright.core.results import (
    Check,
    CleanUp,
    DatabaseInfo,
    DoctorResult,
    ImportResult,
    OptimizeResult,
    ProfileResult,
    SkippedLine,
    SolveResult,
    SubgraphStudyResult,
    SubgraphStudyRow,
    TargetRow,
    TaskReport,
    TaskSearchReport,
    Trial,
    TunerStudyResult,
    TunerStudyRow,
)
from tilewright.core.schedules import ScheduleResult
from tilewright.core.sufficient_cores import CoresResult
from tilewright.deploy import planning, simulating
from tilewright.plan.assignment.solving import solve_file
from tilewright.predict.evaluation import EvaluateRequest, Evaluation

TASK = TaskReport(
    name="layer1.conv1",
    anchor="conv2d",
    implementation="conv2d_direct",
    count=2,
    latency_s=0.002,
    share=0.4,
    gflop_per_s=180.0,
    gbyte_per_s=9.0,
    bound="compute",
    key="0123abcd",
)
OPTIMIZED = OptimizeResult(
    model="zoo:resnet50",
    target="llvm",
    threads=2,
    latency_s=0.010,
    baseline_latency_s=0.015,
    reference_latency_s=0.011,
    speedup_vs_reference=1.1,
    max_abs_error=1e-6,
    tasks=(TASK, replace(TASK, name="fc", share=0.6, count=1, bound="memory")),
    measurements=120,
    failures=1,
    elapsed_s=61.5,
    artifact="tilewright-out/resnet50",
    tasks_latency_s=0.0099,
    peak_flop_per_s=230e9,
    peak_bytes_per_s=18e9,
)
SEARCH = TaskSearchReport(
    task=TASK.name,
    key=TASK.key,
    first_s=0.003,
    best_s=0.002,
    gain=1.5,
    measurements=9,
    failures=2,
    converged=True,
    trials=(
        Trial(
            number=1,
            elapsed_s=1.0,
            latency_s=0.003,
            implementation="conv2d_direct",
            settings={"tile": 8},
        ),
        Trial(
            number=2,
            elapsed_s=2.0,
            latency_s=None,
            implementation="conv2d_direct",
            settings={"tile": 16},
        ),
    ),
)
VERSIONS = VersionsResult(
    model="zoo:resnet50",
    partner="stream",
    threads=1,
    partner_threads=1,
    device_class="made up+beside=1111x1",
    tasks=(
        TaskVersions(
            task=TASK.name,
            key=TASK.key,
            count=2,
            gain=1.25,
            gain_low=1.2,
            gain_high=1.3,
            versions=(
                KernelVersion(
                    implementation="conv2d_winograd",
                    settings={"tile": 8},
                    best=("alone", "one core"),
                    alone_s=0.002,
                    one_core_s=0.002,
                    beside_s=0.004,
                    moved_bytes=3 << 20,
                ),
                KernelVersion(
                    implementation="conv2d_direct",
                    best=("beside", "least moved"),
                    alone_s=0.0025,
                    one_core_s=None,
                    beside_s=0.0032,
                    moved_bytes=1 << 20,
                ),
            ),
        ),
    ),
    unmeasured=("fc",),
    measurements=40,
    failures=3,
)
STUDIED = TunerStudyResult(
    rows=tuple(
        TunerStudyRow(
            tuner=tuner, sweep="conv", measured_share=share, regret_median=regret, regret_p90=0.5
        )
        for tuner, share, regret in (
            ("default", 0.05, 0.02),
            ("default", 0.01, 0.123),
            ("random", 0.01, 0.4),
        )
    )
)
SUBGRAPHS = SubgraphStudyResult(
    rows=(SubgraphStudyRow(task="conv", op_level_s=0.003, subgraph_level_s=0.002, gain=1.5),),
    network_gain=1.063,
    network_gain_low=1.021,
    network_gain_high=1.094,
)
EVALUATED = EvaluateResult(
    family="knobs",
    split="device",
    shots=50,
    rows=(
        EvaluateRow(
            family="knobs",
            target="time_ms",
            group="gpu0",
            n=950,
            mape=0.123,
            median_ape=0.1,
            p90_ape=0.3,
            within_5=0.2,
            within_10=0.5,
            within_20=0.8,
            spearman=None,
            coverage_90=0.91,
        ),
    ),
    picks=(EvaluatePick(group="gpu0", shots=50, verified=20, regret=0.456),),
)
PROFILED = ProfileResult(
    model="zoo:resnet50",
    target="llvm",
    threads=2,
    tasks=OPTIMIZED.tasks,
    network_latency_s=0.010,
    tasks_latency_s=0.0099,
    peak_flop_per_s=230e9,
    peak_bytes_per_s=18e9,
    planned_memory_bytes=1 << 20,
    weight_bytes=1 << 26,
)


def compare_row(model: str, peer: str, speedup: float, *, precision: str = "fp32") -> CompareRow:
    return CompareRow(
        model=model,
        peer=peer,
        precision=precision,
        threads=2,
        latency_s=0.01,
        peer_latency_s=0.01 * speedup,
        speedup=speedup,
        speedup_low=0.95 * speedup,
        speedup_high=1.05 * speedup,
        max_abs_error=1e-6,
        max_rel_error=1e-6,
        default_precision=precision != "fp32",
    )


@dataclass(frozen=True)
class FakeOutcome:
    result: OptimizeResult


STORED = DatabaseInfo(
    path="known.db",
    schema_version=1,
    measurements=12345,
    failures=2,
    devices=1,
    tasks=20,
    runs=3,
    size_bytes=4096,
)


@dataclass
class FakeStore:
    calls: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def info(self) -> DatabaseInfo:
        return STORED

    def gc(self, **options: object) -> CleanUp:
        self.calls.append(("gc", options))
        return CleanUp(measurements=5, failures=0, freed_bytes=2048)

    def export(self) -> None:
        """No verb asks for this here, nor for its like, but an archive has them."""

    import_file = take_in = merge = export


@dataclass
class FakeSession:
    """Set `error` to have every verb raise it; `events` are sent before any verb answers."""

    optimized: OptimizeResult = OPTIMIZED
    profiled: ProfileResult = PROFILED
    predicted: PredictResult = forecasts.PREDICTED
    meter: str | None = None
    verify: bool = True
    compared: CompareResult = field(
        default_factory=lambda: CompareResult(
            rows=(compare_row("zoo:mlp", "onnxruntime", 0.95),), geomean_speedup=0.95
        )
    )
    outputs: Mapping[str, np.ndarray] = field(
        default_factory=lambda: {"y": np.arange(6, dtype=np.float32).reshape(2, 3)}
    )
    checks: tuple[Check, ...] = (Check(name="tvm", status="ok", detail="0.27"),)
    imported: ImportResult = field(
        default_factory=lambda: ImportResult(
            kind="autotvm",
            lines=30,
            imported=5,
            skipped=tuple(SkippedLine(line=n, reason=f"reason {n}") for n in range(1, 26)),
            note="3 of 30 lines fit no task of this database",
        )
    )
    text: str = "loops"
    error: BaseException | None = None
    events: Sequence[Event] = ()
    noise_on_stdout: str = ""
    store: FakeStore = field(default_factory=FakeStore)

    @property
    def records(self) -> FakeStore:
        return self.store

    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sink: EventSink = discard
    closed: int = 0

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def _answer(self, **call: Any) -> None:
        self.calls.append(call)
        if self.noise_on_stdout:
            sys.stdout.write(self.noise_on_stdout + "\n")
        for event in self.events:
            self.sink(event)
        if self.error is not None:
            raise self.error

    def optimize(self, model: str, **options: Any) -> FakeOutcome:
        self._answer(model=model, **options)
        return FakeOutcome(self.optimized)

    def tune(self, model: str, **options: Any) -> FakeOutcome:
        return self.optimize(model, **options)

    def tune_beside(self, model: str, beside: str, **options: Any) -> VersionsResult:
        self._answer(model=model, beside=beside, **options)
        return VERSIONS

    def study_tuners(self, **options: Any) -> TunerStudyResult:
        self._answer(**options)
        return STUDIED

    def study_subgraph(self, model: str, **options: Any) -> SubgraphStudyResult:
        self._answer(model=model, **options)
        return SUBGRAPHS

    def solve(self, file: Path, solver: str) -> SolveResult:
        return solve_file(file, solver)

    def plan(self, what: Sequence[str], devices: Sequence[str], **wishes: Any) -> ScheduleResult:
        self._answer(what=what, devices=devices, **wishes)
        names = ("planner", "robust", "front", "out")
        asked = {name: wishes[name] for name in names}
        return planning.plan_problem(
            Path(what[0]), planning.PlanRequest(limit_s=wishes["seconds"], **asked)
        )

    def simulate(self, plan: Path, **otherwise: Any) -> ScheduleResult:
        self._answer(plan=plan, **otherwise)
        return simulating.simulate_plan(plan, simulating.Otherwise())

    def judge(self, request: EvaluateRequest) -> Evaluation:
        self._answer(request=request)
        return Evaluation(result=EVALUATED, held_out=())

    def profile(self, model: str, **options: Any) -> ProfileResult:
        self._answer(model=model, **options)
        return self.profiled

    def collect(
        self, families: Sequence[str], models: Sequence[str], **options: Any
    ) -> CollectResult:
        self._answer(families=families, models=models, **options)
        return forecasts.COLLECTED

    def fit(self, families: Sequence[str], metrics: Sequence[str]) -> FitResult:
        self._answer(families=families, metrics=metrics)
        return forecasts.FITTED

    def predict(self, model: str, **options: Any) -> PredictResult:
        self._answer(model=model, **options)
        return self.predicted

    def planning_data(self, model: str, devices: Sequence[str], **options: Any) -> PlanningData:
        self._answer(model=model, devices=devices, **options)
        return forecasts.PLANNING

    def predict_table(self, table: str, **options: Any) -> PredictResult:
        self._answer(table=table, **options)
        return replace(forecasts.PREDICTED, network=None)

    def study_padding(self, operator: str, **options: Any) -> SweepResult:
        self._answer(operator=operator, **options)
        return forecasts.SWEPT

    def study_cores(self, model: str, **options: Any) -> CoresResult:
        self._answer(model=model, **options)
        return forecasts.CORES

    def explain(self, name: str, **options: Any) -> ExplainResult:
        self._answer(name=name, **options)
        return forecasts.EXPLAINED

    def best_threads(self, model: str, **options: Any) -> ThreadsResult:
        self._answer(model=model, **options)
        return forecasts.THREADS

    def compare(self, models: Sequence[str], **options: Any) -> CompareResult:
        self._answer(models=models, **options)
        return self.compared

    def run(self, artifact: Path, inputs: Any) -> Mapping[str, np.ndarray]:
        self._answer(artifact=artifact, inputs=inputs)
        return self.outputs

    def export_file(self, path: Path, kind: str | None = None) -> int:
        self._answer(path=path, kind=kind)
        return 7

    def import_file(
        self, path: Path, kind: str | None = None, **options: str | None
    ) -> ImportResult:
        self._answer(path=path, kind=kind, **options)
        return self.imported

    def show(self, name: str, what: str) -> str:
        self._answer(name=name, what=what)
        return self.text

    def doctor(self) -> DoctorResult:
        self._answer()
        return DoctorResult(checks=self.checks, environment={"cpu": "some CPU"})

    def targets(self) -> tuple[TargetRow, ...]:
        self._answer()
        return (TargetRow(name="llvm", usable=True, detail="this CPU", threads=2, vector_bytes=64),)


NOTE = Note(message="clocks moved")
DATABASE_FIELDS = tuple(DatabaseInfo.__dataclass_fields__)

"""The results of the verbs. Their fields are those of the JSON output, which other tools rely on.

Speed-ups are the other's time by ours. *Baseline*: our default settings, *reference*: ONNX Runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.core.accounts import CallReport, LastRun, RoundTimes
from tilewright.core.display import Displayed
from tilewright.core.mixtures import CoarserEstimate, MixtureReport
from tilewright.core.neighbours import BesideResult
from tilewright.core.records import EnergyUse


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One distinct task of a network, which the network calls `count` times.

    `latency_s` is the time of one call alone, None for a task never timed so; `in_place_s` the mean
    of its calls in the running network, None where none was run. `share` is the part of the
    network's time that all calls take, by the time in place, else alone, else None. The rates are
    those of one call alone, else in place, else 0. `flop` counts the operations of the definition,
    `algorithm_flop` those of the chosen algorithm. `bound` is what limits the task: compute, memory
    or overhead; `roof_s` is the least time of the algorithm by the machine's measured peaks.
    `settings` and `layouts` were chosen. `error` is the largest of the results relative to Σ|w||x|,
    None where not checked. `island` says why only ONNX Runtime can compute the task, else it is
    empty. `rival` is the fastest other implementation that was measured, `rival_s` its time.
    """

    name: str
    anchor: str
    implementation: str
    count: int
    latency_s: float | None
    share: float | None
    gflop_per_s: float
    gbyte_per_s: float
    bound: str
    key: str = ""
    flop: int = 0
    bytes: int = 0
    settings: dict[str, int | str | bool] = field(default_factory=dict[str, int | str | bool])
    layouts: tuple[str, ...] = ()
    error: float | None = None
    error_bound: float | None = None
    spread: float = 0.0
    roof_s: float = 0.0
    nodes: tuple[str, ...] = ()
    in_place_s: float | None = None
    algorithm_flop: int = 0
    island: str = ""
    rival: str = ""
    rival_s: float | None = None

    @property
    def call_s(self) -> float | None:
        """Seconds of one call: alone where that was measured, else in place."""
        return self.latency_s if self.latency_s is not None else self.in_place_s

    @property
    def calls_s(self) -> float | None:
        """Seconds of all calls together: in place where that was measured, else alone."""
        call_s = self.in_place_s if self.in_place_s is not None else self.latency_s
        return None if call_s is None else call_s * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes of memory that a network takes at its peak.

    `planned_bytes` is the sum of the five parts: packed weights, the arena of all intermediates,
    the kernels' workspaces, inputs and outputs, code. `measured_bytes` is what loading and running
    it took in a process of its own beyond what that held before, by `method`; None with the
    `reason` where it was not measured.
    """

    planned_bytes: int
    weight_bytes: int
    arena_bytes: int
    workspace_bytes: int
    interface_bytes: int
    code_bytes: int
    measured_bytes: int | None = None
    method: str = "none"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NetworkResult:
    """The first fields of every result about a network."""

    model: str
    target: str
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TimedNetwork(NetworkResult):
    """What every result tells of a network that ran: where its time and its memory go.

    `tasks_latency_s` is the sum of the tasks timed alone, 0 where one of them was not. The peaks
    are those measured on the machine, 0 where they are unknown. `planned_memory_bytes` is the arena
    of all intermediate tensors. `rest_s` is the part of the network's time that no task takes in
    place; the tasks' shares and `rest_share` add up to 1.
    """

    tasks: tuple[TaskReport, ...]
    calls: tuple[CallReport, ...] = ()
    tasks_latency_s: float = 0.0
    rest_s: float = 0.0
    rest_share: float = 0.0
    explanation: str = ""
    peak_flop_per_s: float = 0.0
    peak_bytes_per_s: float = 0.0
    planned_memory_bytes: int = 0
    weight_bytes: int = 0
    environment: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProfileResult(TimedNetwork, Displayed):
    """The result of `profile`: where a network's time goes.

    `energy` is None unless it was asked for, and so is `beside`; `memory` is planned, and measured
    where that was asked for.
    """

    network_latency_s: float
    energy: EnergyUse | None = None
    memory: MemoryUse | None = None
    beside: BesideResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The state of a search after so many measurements (failures included) and seconds.

    `network_latency_s` is the sum over all tasks of count × best time, None until every task has a
    time.
    """

    measurements: int
    elapsed_s: float
    network_latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One measured candidate of a task; `latency_s` is None for a failure."""

    number: int
    elapsed_s: float
    latency_s: float | None
    implementation: str
    settings: dict[str, int | str | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSearchReport:
    """What one run's search found for a task.

    `first_s` is the time of our default settings; `gain` is that time divided by the best one. The
    bounds of `gain` take into account that the two were not timed in turn
    (`core.timings.speedup_apart`), and that the fastest of many candidates is also a lucky one.
    `trials` are those of this run, in the order of measuring.
    """

    task: str
    key: str
    first_s: float | None
    best_s: float | None
    gain: float | None
    measurements: int
    failures: int
    converged: bool
    trials: tuple[Trial, ...] = ()
    gain_low: float | None = None
    gain_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizeResult(TimedNetwork, Displayed):
    """The result of `optimize` and `tune`.

    *Baseline* is our default settings, *reference* is ONNX Runtime. `measurements` counts the
    candidates that this run measured. `level` is op, subgraph or graph. Speed-ups are the other's
    time divided by ours, with bounds (`core.timings`), which are None where the two were not timed
    in turn. Variations are those of the rounds that were timed: (slowest − fastest) / median.
    `reference_untimed` says why the reference has no time; it is empty where it has one. `last_run`
    is None at the first run. `sqnr_db` and `centred_sqnr_db` are the least ratios of signal to
    noise of an output, `top1_agreement` is the part of `top1_rows` rows of an output with the
    largest element at the reference's place (`core.records.NetworkCheck`). `mixture` is there where
    each tensor got a type of its own; `coarser` is what such a choice is estimated to gain over
    single precision, None where that is nothing.
    """

    latency_s: float
    baseline_latency_s: float | None
    reference_latency_s: float | None
    speedup_vs_reference: float | None
    max_abs_error: float | None
    measurements: int
    failures: int
    elapsed_s: float
    artifact: str
    max_rel_error: float | None = None
    latency_spread: float = 0.0
    reference_spread: float = 0.0
    network_key: str = ""
    warnings: tuple[str, ...] = ()
    seconds_by_phase: dict[str, float] = field(default_factory=dict[str, float])
    level: str = "subgraph"
    tuner: str = "default"
    curve: tuple[CurvePoint, ...] = ()
    searches: tuple[TaskSearchReport, ...] = ()
    speedup_vs_reference_low: float | None = None
    speedup_vs_reference_high: float | None = None
    speedup_vs_baseline: float | None = None
    speedup_vs_baseline_low: float | None = None
    speedup_vs_baseline_high: float | None = None
    latency_variation: float = 0.0
    reference_variation: float = 0.0
    reference_untimed: str = ""
    rounds: tuple[RoundTimes, ...] = ()
    last_run: LastRun | None = None
    sqnr_db: float | None = None
    centred_sqnr_db: float | None = None
    mixture: MixtureReport | None = None
    top1_agreement: float | None = None
    top1_rows: int = 0
    coarser: CoarserEstimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRow:
    """A whole assignment of layouts and algorithms: the sum that was predicted, the network's time.

    `corrected_s` adds up what the kernels are expected to take inside a network: their times alone,
    times how much slower they were in the other networks of the race. None where nothing was
    predicted, or the network was not built or gave wrong results.
    """

    name: str
    predicted_s: float | None
    measured_s: float | None
    corrected_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """What the graph tuner chose for one call of the network.

    `layouts` are those of the arguments and of the result, `changed` the arguments that are copied
    into another layout first. `kernel_s` is the time of the kernel, `change_s` that of those
    copies; `measured` says whether the kernel was timed in these layouts.
    """

    call: str
    anchor: str
    implementation: str
    layouts: tuple[str, ...]
    changed: tuple[str, ...]
    kernel_s: float
    change_s: float
    measured: bool
    inputs: tuple[str, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GraphTuneResult(OptimizeResult):
    """The result of `tune --level graph` and of `optimize`.

    `objective_s` is the predicted time of the chosen assignment, `bound_s` a proven lower bound of
    it, `gap` their relative distance. `operators` counts the calls of the network, `candidates` the
    kernels that may be chosen for all of them together, `transforms` the copies between layouts
    that the chosen network makes. `assignments` are the networks that were raced: default, tuned
    (in default layouts), uniform, history_best, bfloat16 (all in it, beside a mixture of types) and
    chosen, then reconsidered, which the solver chose with times that kernels took inside the
    networks of the race. `shipped` is the name of the one whose network lies in the folder,
    "shipped before" for the network of an earlier run, empty where nothing was built. `choices` is
    the chosen assignment, call by call.
    """

    solver: str
    objective_s: float
    bound_s: float
    gap: float
    solve_s: float
    operators: int
    candidates: int
    transforms: int
    measured_latency_s: float | None
    assignments: tuple[AssignmentRow, ...]
    choices: tuple[ChoiceRow, ...] = ()
    shipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerStudyRow:
    """Regret of a tuner on a sweep after measuring a share of the space, over the seeds.

    Regret is (believed time of the tuner's choice) / (least believed time) - 1.
    """

    tuner: str
    sweep: str
    measured_share: float
    regret_median: float
    regret_p90: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TunerStudyResult(Displayed):
    """The result of `study tuners`."""

    rows: tuple[TunerStudyRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphStudyRow:
    """One task tuned at both levels, both settings timed in turn in the fused kernel; `gain` is
    op-level time over subgraph-level time, with bounds. Times are None where a setting failed."""

    task: str
    op_level_s: float | None
    subgraph_level_s: float | None
    gain: float | None
    gain_low: float | None = None
    gain_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SubgraphStudyResult(Displayed):
    """The result of `study subgraph`.

    `network_gain` is the time of the network tuned at the operator level divided by that of the one
    tuned at the subgraph level, with bounds.
    """

    rows: tuple[SubgraphStudyRow, ...]
    network_gain: float | None
    network_gain_low: float | None = None
    network_gain_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DatabaseInfo(Displayed):
    """The result of `db info`: how much the database and the cache of models hold.

    `devices` counts device classes, `tasks` distinct workload keys; `size_bytes` includes the
    write-ahead log.
    """

    path: str
    schema_version: int
    measurements: int
    failures: int
    devices: int
    tasks: int
    runs: int = 0
    size_bytes: int = 0
    cache: str = ""
    cache_bytes: int = 0
    cache_limit_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """The result of `db gc`: rows and cached models that were removed, and bytes freed by it."""

    measurements: int
    failures: int
    freed_bytes: int
    cached_models: int = 0
    cache_freed_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLine:
    """One line (row, record) of a file that was not imported, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ImportResult(Displayed):
    """The result of `db import` and `db merge`.

    `lines` counts the records of the file; each is `imported` (new here), `known` (was here
    already) or `skipped`. The counts by kind of record count new ones; a foreign log also brings
    the `devices` and `workloads` of its lines. `unmatched` counts outcomes of a foreign log that
    belong to no task known before; `note` says so in words.
    """

    path: str = ""
    kind: str = ""
    lines: int = 0
    imported: int = 0
    known: int = 0
    skipped: tuple[SkippedLine, ...] = ()
    measurements: int = 0
    failures: int = 0
    devices: int = 0
    workloads: int = 0
    runs: int = 0
    shipments: int = 0
    networks: int = 0
    peaks: int = 0
    unmatched: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding of `tilewright doctor`; `status` is ok, warning or problem."""

    name: str
    status: str
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DoctorResult(Displayed):
    """The result of `doctor`: its findings, and the versions and hardware that were found."""

    checks: tuple[Check, ...]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """One target that `--target` takes on this machine.

    `usable` says whether kernels can run there now, `detail` in words what it is or what is
    missing. `target` is the TVM target string, `vector_bytes` the width of a vector register.
    """

    name: str
    usable: bool
    detail: str
    target: str = ""
    threads: int = 0
    vector_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRow:
    """Something that can be set on a machine and that times depend on.

    `value` is how it is set now and `range` what it takes, in words, empty where nothing tells;
    `how` names the file, the call or the flag. `settable` says whether this process may set it,
    `reason` why not.
    """

    name: str
    settable: bool
    value: str
    range: str
    how: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SolveResult(Displayed):
    """The result of `solve`.

    No assignment costs less than `bound_s`; `gap` is (objective − bound) / objective, 0 for a
    proven optimum. `solver` is the one that found the assignment, `variables` and `tables` are
    counts. `by_role_s` divides the objective into seconds for each role of table.
    """

    name: str
    solver: str
    objective_s: float
    bound_s: float
    gap: float
    solve_s: float
    variables: int
    tables: int
    note: str = ""
    by_role_s: dict[str, float] = field(default_factory=dict[str, float])
    assignment: dict[str, str] = field(default_factory=dict[str, str])

"""What `collect`, `fit`, `predict`, `explain` and `evaluate` answer: fields of the JSON contract,
as in `results`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.core.display import Displayed
from tilewright.core.records import Precision
from tilewright.core.results import NetworkResult

METRICS = ("latency", "power", "energy", "memory")
"""What `predict` can tell of a network."""

Source = Literal["exact", "interpolated", "model", "facts", "roofline"]
"""Where a prediction comes from: this very kernel was measured; its neighbours in size were; a
model of its family; the kernel's facts and the processor's datasheet; the roofline alone."""

Mark = Literal["measured", "predicted", "bound"]
"""What a number is: of this very thing or between measured ones; told by a model; the least or the
most that it can be."""


def mark_of(source: Source) -> Mark:
    """What a time from this source is."""
    if source in ("exact", "interpolated"):
        return "measured"
    return "bound" if source == "roofline" else "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRound:
    """A round of `collect --adaptive`: `kernels` of a family whose times were predicted before they
    were measured, the mean relative error, and the part of them `above` 10 %."""

    family: str
    device_class: str
    kernels: int
    mape: float
    above: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedShare:
    """What `collect --share` took of a network: `tasks` of its `tasks_of_network`, which make up
    `share` of its time by what was known when the command began. The times of `measured` tasks of
    the network had been measured by then, the others are predicted."""

    model: str
    device_class: str
    tasks: int
    tasks_of_network: int
    share: float
    measured: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CollectResult(Displayed):
    """`tilewright collect`.

    `samples` were measured by this command and `known` before; `beside` counts what was measured in
    addition: the copies between layouts that an operator needs, and probes of the machine's own
    speed. `complete` says that everything that was asked for has been measured. `rounds` are those
    of `--adaptive`, `shares` say what `--share` took of each network.
    """

    samples: int
    known: int
    failures: int
    complete: bool
    elapsed_s: float
    rounds: tuple[CollectRound, ...] = ()
    beside: int = 0
    shares: tuple[CollectedShare, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFamily:
    """One predictor of a `metric`: latency, or power, which is of all families. It was fitted to
    `rows` measured kernels; `reach` is the half width of its 90 % interval, as a factor minus 1;
    `error` says why it could not be fitted."""

    family: str
    rows: int
    reach: float | None
    data_hash: str
    error: str = ""
    metric: str = "latency"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FitResult(Displayed):
    """`tilewright fit`."""

    device_class: str
    folder: str
    families: tuple[FittedFamily, ...]
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorForecast:
    """One distinct kernel of a network: the seconds of one of its `count` calls, timed alone, and
    the interval that contains 90 % of such times; joules of a call, None where unknown or not asked
    for. Only operators of a table, each of which runs alone, have power and peak memory."""

    name: str
    family: str
    implementation: str
    count: int
    latency_s: float
    low_s: float
    high_s: float
    source: Source
    energy_j: float | None = None
    power_w: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkForecast:
    """The whole network: latency, power while it runs and energy of one run, each with the interval
    that holds 90 % of such. Values that are unknown or were not asked for are None."""

    latency_s: float | None
    latency_low_s: float | None
    latency_high_s: float | None
    power_w: float | None
    energy_j: float | None
    peak_memory_bytes: int | None
    power_low_w: float | None = None
    power_high_w: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PredictResult(NetworkResult, Displayed):
    """`tilewright predict`; `network` is None for a table of operators. `metrics` are those that
    were asked for; without latency a network has no `operators`. `energy_reason` says why there is
    neither power nor energy, where one of them was asked for. `precision` is the coarsest type that
    was allowed."""

    settings: str
    network: NetworkForecast | None
    operators: tuple[OperatorForecast, ...]
    metrics: tuple[str, ...] = METRICS
    energy_reason: str = ""
    precision: Precision = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """An operator with one parameter at `value`, in its default settings: measured (None where it
    failed, or no device is here) and predicted seconds, the roofline's (None of an unknown GPU),
    and facts that change along the sweep. On a GPU the predicted seconds are those of a model of
    waves, `power_w` is the mean power while the kernel ran (None where no meter is), and
    `memory_bytes` the device memory that its tensors and workspaces take."""

    value: int
    latency_s: float | None
    predicted_s: float
    roof_s: float | None
    implementation: str
    facts: dict[str, float]
    power_w: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult(Displayed):
    """`tilewright study padding`. On a GPU `layout` says how images lie: NCHW or NHWC; else it is
    empty."""

    operator: str
    parameter: str
    rows: tuple[SweepRow, ...]
    layout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """How a choice affects an operator's predicted time over its settings: `importance` is the
    share of the variance of log time that lies between its values, `rank_correlation` Spearman's
    correlation (None if values have no order), `effects` the mean time of each value ÷ that of the
    best. These vary all choices at once. Two others vary only this one: `permutation_importance` is
    the mean relative change of the time if the choice is replaced by that of another setting,
    `partial_dependence` the time of each value ÷ that of the best. They are None and empty for the
    implementation, whose settings do not apply to another one."""

    name: str
    importance: float
    rank_correlation: float | None
    effects: dict[str, float]
    permutation_importance: float | None = None
    partial_dependence: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoint:
    """A value of an operator's parameter from which on `fact` changes: vectors or rounds of threads
    are no longer full, or a working set no longer fits a cache. `ratio` is the predicted time per
    FLOP there divided by that right before. `measured_ratio` is the step that was measured there,
    None if it was not measured or too few values could be; `confirmed` says that it is the largest
    step around, is larger than the noise, and has the predicted direction."""

    parameter: str
    value: int
    fact: str
    before: float
    after: float
    ratio: float
    measured_ratio: float | None = None
    confirmed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDifference:
    """A fact in which two kernels differ, and its part of the predicted gap; parts add up to 1.
    There is no model for CUDA kernels, so their parts are None."""

    fact: str
    first: float | str | None
    second: float | str | None
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplainResult(Displayed):
    """`tilewright explain`. `facts` are those of the explained kernel; `ratio` is its predicted
    time over the other's, None without one.

    For a CUDA target `facts` are those of the main function, `functions` those of each function, in
    their order. The time is that of the roofline, None for a GPU without a known datasheet. If
    facts from the compiler are missing, `reason` says why.
    """

    name: str
    family: str
    latency_s: float | None
    source: Source
    factors: tuple[Factor, ...]
    turning_points: tuple[TurningPoint, ...]
    facts: dict[str, float | str]
    ratio: float | None = None
    differences: tuple[FactDifference, ...] = ()
    functions: tuple[dict[str, float | str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTime:
    """A network's time with so many threads."""

    threads: int
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ThreadsResult(Displayed):
    """`tilewright explain MODEL --threads`: at most five measurements, and the best of them."""

    model: str
    measured: tuple[ThreadTime, ...]
    best_threads: int
    loss_of_all: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRow:
    """Predictions of one target for one group of a family's rows: an implementation, a network, a
    device, or all.

    Errors are |predicted ÷ measured − 1| as fractions: mean, median, 90th percentile, shares of at
    most 0.05, 0.1 and 0.2. `spearman` is None where all are equal, `coverage_90` is the share of
    rows inside their 90 % interval.
    """

    family: str
    target: str
    group: str
    n: int
    mape: float
    median_ape: float
    p90_ape: float
    within_5: float
    within_10: float
    within_20: float
    spearman: float | None
    coverage_90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatePick:
    """A search by prediction: after `shots` samples, the `verified` settings with the least
    predicted times are looked up. `regret` is how much slower the best of all these is than the
    best setting of the table, as a fraction.
    """

    group: str
    shots: int
    verified: int
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvaluateResult(Displayed):
    """`tilewright evaluate`; `notes` say which rows were left out; a card for each family and
    target."""

    family: str
    split: str
    shots: int
    rows: tuple[EvaluateRow, ...]
    picks: tuple[EvaluatePick, ...] = ()
    notes: tuple[str, ...] = ()
    cards: tuple[PredictorCard, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The least and the greatest value of one number of the operators that a predictor was fitted
    to."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorCard:
    """One predictor: a family's, of one target.

    `devices` are the device classes that its data is of, `rows` measurements of `configurations`
    different operators; `data_hash` identifies them; `measured_from` and `measured_until` are the
    days of the measurements of these classes, None where they were not recorded. `split` is what
    the errors are of; `limits` are sentences. `date` is the day of the evaluation, `version` that
    of tilewright.
    """

    family: str
    target: str
    devices: tuple[str, ...]
    rows: int
    configurations: int
    data_hash: str
    measured_from: str | None
    measured_until: str | None
    split: str
    folds: int
    seed: int
    covers: tuple[Covered, ...]
    limits: tuple[str, ...]
    date: str
    version: str

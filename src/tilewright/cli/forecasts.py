"""`tilewright predict`, `explain`, `fit` and `evaluate`: times before they are measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from tilewright.cli.flags import (
    ForecastChoiceFlags,
    ModelFlags,
    PlacedFlags,
    SharedFlags,
    SharedFlagsOfExplain,
    TargetFlag,
)
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.work import working
from tilewright.core.errors import UsageError

FAMILIES = "conv2d, linear, bmm, softmax, layer_norm, gemm_power, knobs, energy"


def predict(
    model: Annotated[str | None, Parameter(help=MODEL_HELP)] = None,
    /,
    *,
    table: Annotated[
        Path | None,
        Parameter(
            help="Predict operators instead: a .csv or .parquet with op:… in a column `operator`."
        ),
    ] = None,
    choice: ForecastChoiceFlags = ForecastChoiceFlags(),
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, power, energy, memory, or several separated by commas [default: all].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    model_flags: ModelFlags = ModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Predict a network's time, power, energy and memory without compiling it.

    Each kernel's time has a source: exact (this kernel was measured), interpolated (kernels of
    similar sizes were measured), model (a fitted model), or roofline (a lower bound)."""
    if (model is None) == (table is None):
        raise UsageError(
            "predict takes a model or --table FILE.", hint="tilewright predict zoo:resnet50"
        )
    with working(flags, model_flags) as work:
        forecast = work.session.predict if table is None else work.session.predict_table
        work.tell(
            "predict",
            forecast(
                str(table or model),
                options=model_flags.options(flags.seed),
                settings=choice.settings,
                max_error=choice.max_error,
                metrics=metric,
            ),
        )


def explain(
    name: Annotated[
        str, Parameter(help="op:conv2d[...] or a task's key; with --threads a network.")
    ],
    /,
    *,
    versus: Annotated[
        str | None, Parameter(help="Another operator or task, to be compared with the first.")
    ] = None,
    confirm: Annotated[
        bool,
        Parameter(
            negative="", help="Measure a few values around the largest turning points of op:…."
        ),
    ] = False,
    thread_counts: Annotated[
        bool,
        Parameter(
            name="--thread-counts",
            negative="",
            help="Find the best number of threads, as --threads without a number does; with "
            "`--threads 8` at most 8 are tried.",
        ),
    ] = False,
    model_flags: ModelFlags = ModelFlags(),
    flags: SharedFlagsOfExplain = SharedFlagsOfExplain(),
) -> None:
    """Say which settings an operator's time depends on, and at which sizes it jumps.

    Times are predicted; only --confirm, and --threads without a number, measure. Factors are
    settings, each with its share of the variance of the predicted times. Turning points
    are sizes from which on vectors or rounds of threads are no longer full, or data no longer fits
    a cache. `explain MODEL --threads` finds the best number of threads for a network. With
    `--target 'cuda -model=H100'` the facts are those of the CUDA kernels that TVM's default
    schedules generate.
    """
    threads = thread_counts or flags.asks_for_threads
    options = model_flags.options(flags.seed)
    if threads and (versus is not None or confirm):
        raise UsageError(
            f"{'--versus' if versus is not None else '--confirm'} is for operators, --threads "
            "without a number for a network.",
            hint="Give the number of threads: --threads 4.",
        )
    with working(flags, model_flags) as work:
        if threads:
            found = work.session.best_threads(name, options=options)
        else:
            found = work.session.explain(name, versus=versus, confirm=confirm, options=options)
        work.tell("explain", found)


def fit(
    *families: Annotated[str, Parameter(help="Families of operators [default: all known].")],
    metric: Annotated[
        tuple[str, ...],
        Parameter(
            help="latency, energy, or both separated by a comma [default: both].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    target_flag: TargetFlag = TargetFlag(),
    flags: PlacedFlags = PlacedFlags(),
) -> None:
    """Fit predictors of kernels' times and energies to measurements of this device class.

    They are fitted to the measurements that ship with tilewright and to those in the database.
    `predict` uses them, and fits by itself those that are missing.
    """
    with working(flags, target_flag) as work:
        work.tell("fit", work.session.fit(families, metric))


_SPLIT = Group("Split", sort_key=10)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFlags:
    """What the predictor has not seen when it is judged."""

    split: Annotated[
        Literal["configuration", "network", "device"],
        Parameter(
            group=_SPLIT,
            help="What is kept aside and predicted. configuration: a part of the configurations, "
            "with all their rows; network: all operators of some networks (not for a table); "
            "device: one device after the other.",
        ),
    ] = "configuration"
    folds: Annotated[
        int,
        Parameter(group=_SPLIT, help="Number of parts of the configurations or networks."),
    ] = 5
    specs: Annotated[
        Path | None, Parameter(group=_SPLIT, help="Datasheets of the devices, a .json list.")
    ] = None
    shots: Annotated[
        int,
        Parameter(
            group=_SPLIT,
            help="How many rows of the device kept aside the predictor may learn from.",
        ),
    ] = 0


def evaluate(
    *,
    family: Annotated[
        str,
        Parameter(
            help=f"With a table, the kind of its rows: {FAMILIES}. Without a table, a family of "
            "predictors (chains of relu, add, … are `elementwise`), or all of them."
        ),
    ] = "all",
    table: Annotated[
        Path | None,
        Parameter(
            help="Measurements of operators, .parquet or .csv [default: the known kernels of this "
            "device class with this number of threads]."
        ),
    ] = None,
    split_flags: SplitFlags = SplitFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Judge a predictor on measurements that it was not fitted to.

    Without --table, the measurements are the known kernels of this machine's class. With --out, a
    card for each predictor (data, split, errors, limits, a plot of predicted against measured) is
    written to predictors.html and predictors.md. With --table, --threads is the number of threads
    that fit the predictor.
    """
    with working(flags) as work:
        from tilewright.predict.evaluation import EvaluateRequest

        found = work.session.judge(
            EvaluateRequest(
                table=table,
                family=family,
                split=split_flags.split,
                folds=split_flags.folds,
                specs=split_flags.specs,
                shots=split_flags.shots,
            )
        )
        if flags.out is not None:
            from tilewright.report.predictor_cards import write_cards

            write_cards(flags.out, found)
        cards = [f"Cards: {flags.out / 'predictors.html'}"] if flags.out else []
        work.tell("evaluate", found.result, remarks=cards)

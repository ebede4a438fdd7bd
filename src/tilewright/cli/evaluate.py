"""`tilewright evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from tilewright.cli.flags import SharedFlags, TargetFlag
from tilewright.cli.work import working
from tilewright.core.errors import UsageError

FAMILIES = "conv2d, linear, bmm, softmax, layer_norm, gemm_power, knobs, energy"


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
    target_flag: TargetFlag = TargetFlag(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Judge a predictor on measurements that it was not fitted to.

    Without --table, the measurements are the known kernels of this machine's class, or of that of
    --target, which need not be here. With --out, a
    card for each predictor (data, split, errors, limits, a plot of predicted against measured) is
    written to predictors.html and predictors.md. With --table, --threads is the number of threads
    that fit the predictor.
    """
    if table is not None and target_flag != TargetFlag():
        raise UsageError("--target goes without --table: a table names its own devices.")
    with working(flags, target_flag) as work:
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

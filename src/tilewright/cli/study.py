"""`tilewright study`: experiments about tuning itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from tilewright.cli.flags import ModelFlags, SharedFlags
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.report import views

study = App(
    name="study",
    help="Experiments about tuning: which tuner finds good settings soonest, what subgraphs gain.",
    sort_key=90,
)


@study.command
def tuners(
    *,
    sweep: Annotated[
        Path | None,
        Parameter(
            help="A stored sweep (.json), or a knob table of the auto-tuning community (.parquet) "
            "[default: the sweeps of the package]."
        ),
    ] = None,
    seeds: Annotated[int, Parameter(help="Runs of each tuner on each sweep.")] = 5,
    tuner: Annotated[
        tuple[str, ...],
        Parameter(
            help="Compare these only; repeatable.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    flags: SharedFlags | None = None,
) -> int:
    """Replay stored exhaustive sweeps: regret of each tuner against the share it measured."""
    flags = flags or SharedFlags()
    with working(flags) as work:
        result = work.session.study_tuners(sweep=sweep, seeds=seeds, tuners=tuner, out=flags.out)
    answer = Answer(
        command="study tuners",
        data=result,
        rows=views.tuner_study_table(result.rows),
        remarks=[f"Figures: {flags.out / 'study-tuners.html'}"] if flags.out else [],
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 0


@study.command
def subgraph(
    model: Annotated[str, Parameter(help=MODEL_HELP)],
    /,
    *,
    budget: Annotated[
        str, Parameter(help="A time or a number of measurements for both levels together.")
    ] = "4m",
    tuner: Annotated[str, Parameter(help="Which tuner searches.")] = "default",
    model_flags: ModelFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Tune bare operators and fused subgraphs, each with half of the budget, and compare.

    An int8 convolution whose epilogue narrows its int32 sums to int8 is always part of it.
    """
    flags, model_flags = flags or SharedFlags(), model_flags or ModelFlags()
    options = model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        result = work.session.study_subgraph(model, budget=budget, tuner=tuner, options=options)
    gain = result.network_gain
    answer = Answer(
        command="study subgraph",
        data=result,
        rows=views.subgraph_study_table(result.rows),
        remarks=[] if gain is None else [f"The whole network gains a factor of {gain:.3f}."],
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 0

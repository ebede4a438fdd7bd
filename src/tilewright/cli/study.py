"""`tilewright study`: experiments about tuning itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from tilewright.cli import help_pages, optimize
from tilewright.cli.flags import PredictedModelFlags, SharedFlags, ThreadedFlags
from tilewright.cli.work import working
from tilewright.core.errors import UsageError

study = App(
    name="study",
    help="Run experiments: compare tuners, levels of tuning, or sizes of one operator.",
    group=help_pages.EXPERIMENTS,
    sort_key=9,
)


@study.command(help_epilogue=help_pages.examples("study tuners"))
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
            help="Compare only this tuner; may be repeated.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    flags: ThreadedFlags = ThreadedFlags(),
) -> None:
    """Compare tuners on stored exhaustive sweeps: each one's regret after 1 to 10 % of a space."""
    figures = [f"Figures: {flags.out / 'study-tuners.html'}"] if flags.out else []
    with working(flags) as work:
        work.tell(
            "study tuners",
            work.session.study_tuners(sweep=sweep, seeds=seeds, tuners=tuner, out=flags.out),
            remarks=figures,
        )


@study.command(help_epilogue=help_pages.examples("study subgraph"))
def subgraph(
    model: Annotated[str, Parameter(help=optimize.MODEL_HELP)],
    /,
    *,
    budget: Annotated[
        str, Parameter(help="A time or a number of measurements for both levels together.")
    ] = "4m",
    tuner: Annotated[str, Parameter(help="The tuner of both levels.")] = "default",
    model_flags: PredictedModelFlags = PredictedModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Tune bare operators and fused subgraphs, each with half of the budget, and compare.

    Two int8 convolutions, each fused with the operators that narrow its int32 sums to int8, are
    always part of the study.
    """
    options = model_flags.options(flags.seed)
    with working(flags, model_flags) as work:
        work.tell(
            "study subgraph",
            work.session.study_subgraph(model, budget=budget, tuner=tuner, options=options),
        )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFlags:
    """Which kernels of a GPU are studied."""

    layout: Annotated[
        str, Parameter(help="How images lie on a GPU: NCHW, or NHWC, their channels innermost.")
    ] = "NCHW"
    implementation: Annotated[
        str,
        Parameter(
            help="On a GPU: the implementation, such as cuda_default, TVM's own schedules "
            "[default: the one with the least estimate at each value].",
            show_default=False,
        ),
    ] = ""


@study.command(help_epilogue=help_pages.examples("study padding"))
def padding(
    operator: Annotated[str, Parameter(help="op:conv2d[...] or any other single operator.")],
    /,
    *,
    parameter: Annotated[str, Parameter(help="The parameter that is varied: pad, h, c, …")] = "pad",
    values: Annotated[
        str,
        Parameter(help="Its values, such as 0,1,2 [default: 0 to 3, or around the given value]."),
    ] = "",
    kernels: KernelFlags = KernelFlags(),
    model_flags: PredictedModelFlags = PredictedModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Measure and predict an operator while one parameter, such as padding, varies.

    It has default settings. The facts that change with the parameter are shown too."""
    options = model_flags.options(flags.seed)
    steps = read_steps(values)
    with working(flags, model_flags) as work:
        work.tell(
            "study padding",
            work.session.study_padding(
                operator,
                parameter=parameter,
                values=steps,
                layout=kernels.layout,
                implementation=kernels.implementation,
                options=options,
            ),
        )


def read_steps(text: str) -> tuple[int, ...]:
    """`0,1,2` → (0, 1, 2). Raises UsageError for anything else."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"--values {text!r} are no whole numbers.", hint="--values 0,1,2,3")
    return tuple(int(part) for part in parts)

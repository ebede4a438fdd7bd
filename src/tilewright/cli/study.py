"""`tilewright study`: experiments about tuning itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tilewright.cli import help_pages, optimize
from tilewright.cli.collect import ControlFlags, values
from tilewright.cli.flags import PredictedModelFlags, SharedFlags, ThreadedFlags
from tilewright.cli.work import working
from tilewright.core.errors import UsageError

if TYPE_CHECKING:
    from tilewright.insight.core_design import CoresDesign

study = App(
    name="study",
    help="Run experiments: on tuners, levels of tuning, sizes of operators, numbers of cores.",
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridFlags(ControlFlags):
    """The grid of cores, neighbours and controls."""

    cores: Annotated[
        str,
        Parameter(
            help="Numbers of cores, such as 1,2,4,8 [default: 1, 2, 4 and so on, and all that "
            "there are]. Numbers that this machine has are measured, others predicted.",
            show_default=False,
        ),
    ] = ""
    beside: Annotated[
        tuple[str, ...],
        Parameter(
            help="What runs on other cores meanwhile: none, stream (it streams memory), compute "
            "(it computes on what its caches hold), or an operator, 'op:…'; on four cores "
            "streamx4. May be repeated [default: none, stream and compute].",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = ()
    gain: Annotated[
        str,
        Parameter(
            help="How much longer than the fastest number of cores fewer may take, as a part of "
            "its time; or several parts separated by commas."
        ),
    ] = "0.05"

    def design(self) -> CoresDesign:
        """The same as the session wants it. Raises UsageError for what is no list."""
        from tilewright.insight.core_design import CoresDesign

        usual = CoresDesign()
        return CoresDesign(
            cores=values("--cores", self.cores, int) if self.cores else (),
            beside=self.beside or usual.beside,
            gains=values("--gain", self.gain, float),
            **self.controls,
        )


@study.command(help_epilogue=help_pages.examples("study cores"))
def cores(
    model: Annotated[str, Parameter(help=optimize.MODEL_HELP)],
    /,
    *,
    budget: Annotated[
        str,
        Parameter(
            help="How long is measured, or how many points of the grid. With 0 all is predicted."
        ),
    ] = "2m",
    grid: GridFlags = GridFlags(),
    model_flags: PredictedModelFlags = PredictedModelFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Tell from how many cores on more do not pay, beside neighbours and at other clocks.

    Each operator of MODEL is measured on the numbers of cores that this machine has; what it takes
    on others is predicted from its time on one core, with an interval.
    """
    options, design = model_flags.options(flags.seed), grid.design()
    figures = [f"Figures: {flags.out / 'study-cores.html'}"] if flags.out else []
    with working(flags, model_flags) as work:
        work.tell(
            "study cores",
            work.session.study_cores(
                model, design=design, budget=budget, out=flags.out, options=options
            ),
            remarks=figures,
        )


def read_steps(text: str) -> tuple[int, ...]:
    """`0,1,2` → (0, 1, 2). Raises UsageError for anything else."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"--values {text!r} are no whole numbers.", hint="--values 0,1,2,3")
    return tuple(int(part) for part in parts)

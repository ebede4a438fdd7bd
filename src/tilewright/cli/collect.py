"""`tilewright collect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

from cyclopts import Parameter

from tilewright.cli.flags import CollectedFlags, CommonFlags
from tilewright.cli.work import working
from tilewright.core.errors import UsageError

if TYPE_CHECKING:
    from tilewright.collect.design import Design

_Value = TypeVar("_Value", int, float, str)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ControlFlags:
    """At which values the machine's controls are held meanwhile."""

    clock: Annotated[
        str,
        Parameter(
            help="Clocks at which the CPUs, or the GPU, are kept, such as 1.5GHz,3GHz; `usual` "
            "leaves them as they are. This and the next five take a machine that lets us "
            "(`tilewright targets --controls`)."
        ),
    ] = "usual"
    governor: Annotated[
        str,
        Parameter(help="What decides about clocks, such as usual,performance,powersave."),
    ] = "usual"
    turbo: Annotated[
        str, Parameter(help="Whether clocks may be above the nominal one: usual, on, off.")
    ] = "usual"
    smt: Annotated[str, Parameter(help="Whether cores have several threads: usual, on, off.")] = (
        "usual"
    )
    power_cap: Annotated[
        str, Parameter(help="Limits of each package's power, or the GPU's, such as usual,65W.")
    ] = "usual"
    cache_ways: Annotated[
        str,
        Parameter(help="Ways of the last-level cache that kernels may fill, such as usual,4."),
    ] = "usual"

    @property
    def controls(self) -> dict[str, tuple[str, ...]]:
        """The same as designs have them. Raises UsageError for what is no list."""
        return {
            "smt": values("--smt", self.smt, str),
            "governors": values("--governor", self.governor, str),
            "turbo": values("--turbo", self.turbo, str),
            "clocks": values("--clock", self.clock, str),
            "power_caps": values("--power-cap", self.power_cap, str),
            "cache_ways": values("--cache-ways", self.cache_ways, str),
        }


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DesignFlags(ControlFlags):
    """In which settings and under which circumstances configurations are measured."""

    settings: Annotated[
        int,
        Parameter(
            help="Random settings measured per configuration, in addition to its default and best "
            "known settings."
        ),
    ] = 3
    adaptive: Annotated[
        bool,
        Parameter(
            help="Spend part of the samples on kernels similar to those predicted badly.",
            negative="",
        ),
    ] = False
    informative: Annotated[
        bool,
        Parameter(
            help="For a new device: measure those configurations first from which the others can "
            "be predicted best.",
            negative="",
        ),
    ] = False
    threads: Annotated[
        str | None,
        Parameter(
            help="Threads of a kernel, or several numbers separated by commas [default: all "
            "physical cores]."
        ),
    ] = None
    dtype: Annotated[
        str, Parameter(help="Element types: float32, int8, or both, separated by a comma.")
    ] = "float32"
    cache: Annotated[
        str,
        Parameter(
            help="States of the caches: usual (as in a network), warm, cold, or several separated "
            "by commas."
        ),
    ] = "usual"
    neighbours: Annotated[
        str,
        Parameter(
            help="Number of copies of the kernel that run on other cores meanwhile, or several "
            "numbers separated by commas."
        ),
    ] = "0"
    multiprocessors: Annotated[
        str,
        Parameter(
            help="Of a GPU: how many multiprocessors kernels get, such as usual,64; `targets "
            "--controls` has the numbers."
        ),
    ] = "usual"
    share: Annotated[
        float,
        Parameter(
            help="Of networks: only the operators that together make up this share of their time, "
            "0.9 for 90 %."
        ),
    ] = 1.0

    def design(self) -> Design:
        """The same as the session wants it. Raises UsageError for what is no list."""
        from tilewright.collect.design import Design
        from tilewright.measure.circumstances import Cache

        return Design(
            settings=self.settings,
            adaptive=self.adaptive,
            informative=self.informative,
            threads=() if self.threads is None else values("--threads", self.threads, int),
            caches=cast("tuple[Cache, ...]", values("--cache", self.cache, str)),
            dtypes=values("--dtype", self.dtype, str),
            neighbours=values("--neighbours", self.neighbours, int),
            **self.controls,
            multiprocessors=values("--multiprocessors", self.multiprocessors, str),
            share=self.share,
        )


def values(flag: str, text: str, kind: Callable[[str], _Value]) -> tuple[_Value, ...]:
    """`1,2` → (1, 2). Raises UsageError for a value that is empty, repeated, or of another kind."""
    parts = [part.strip() for part in text.split(",")]
    try:
        found = tuple(kind(part) for part in parts)
    except ValueError:
        kinds = "whole numbers" if kind is int else "numbers"
        raise UsageError(f"{flag} {text!r} is no list of {kinds}.", hint=f"{flag} 1,2") from None
    if not all(parts) or len(set(found)) < len(found):
        raise UsageError(f"{flag} {text!r} must name each value once, with commas between them.")
    return found


def collect(
    *models: Annotated[str, Parameter(help="Networks whose tasks are measured.")],
    op: Annotated[
        tuple[str, ...],
        Parameter(
            help="Family of operators, such as conv2d, or `all`; may be repeated.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    samples: Annotated[int, Parameter(help="Candidates to measure per family.")] = 200,
    budget: Annotated[
        str,
        Parameter(
            help="Total for this command, including earlier runs of it: a time (90s, 10m) or a "
            "number of measurements."
        ),
    ] = "10m",
    design_flags: DesignFlags = DesignFlags(),
    model_flags: CollectedFlags = CollectedFlags(),
    flags: CommonFlags = CommonFlags(),
) -> None:
    """Measure operators in many configurations and settings, for predictors to learn from.

    Results are written to the database; those with another number of threads, state of the caches
    or number of neighbours are kept apart. With --power each kernel also runs in a loop for some
    seconds while a meter is read. A repeated command continues where the last one stopped.
    """
    if not models and not op:
        raise UsageError(
            "collect needs a family of operators or a network.",
            hint="tilewright collect --op conv2d --samples 200, or collect zoo:resnet50",
        )
    design = design_flags.design()
    with working(flags, model_flags) as work:
        work.session.meter = model_flags.meter_name
        work.tell(
            "collect",
            work.session.collect(
                op,
                models,
                samples=samples,
                design=design,
                budget=budget,
                options=model_flags.options(flags.seed),
            ),
        )

"""`tilewright collect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

from cyclopts import Parameter

from tilewright.cli.flags import CommonFlags, MeteredFlags
from tilewright.cli.work import working
from tilewright.core.errors import UsageError

if TYPE_CHECKING:
    from tilewright.collect.design import Design

_Value = TypeVar("_Value", int, str)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DesignFlags:
    """In which settings and under which circumstances configurations are measured."""

    settings: Annotated[
        int,
        Parameter(
            help="Random settings per configuration, beside its default and best known ones."
        ),
    ] = 3
    adaptive: Annotated[
        bool,
        Parameter(help="Spend part of the samples near what was predicted badly.", negative=""),
    ] = False
    informative: Annotated[
        bool,
        Parameter(
            help="On a new device: first measure what the others can be predicted from best.",
            negative="",
        ),
    ] = False
    threads: Annotated[
        str | None,
        Parameter(help="Threads of a kernel; several with commas [default: all physical cores]."),
    ] = None

    dtype: Annotated[
        str, Parameter(help="Types to compute in: float32, int8, or both, with a comma.")
    ] = "float32"
    cache: Annotated[
        str,
        Parameter(
            help="States of the caches: usual (as in a network), warm, cold; several with commas."
        ),
    ] = "usual"
    neighbours: Annotated[
        str,
        Parameter(
            help="Copies of the kernel that run on other cores meanwhile; several with commas."
        ),
    ] = "0"

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
        )


def values(flag: str, text: str, kind: Callable[[str], _Value]) -> tuple[_Value, ...]:
    """`1,2` → (1, 2). Raises UsageError for a value that is empty, repeated, or of another kind."""
    parts = [part.strip() for part in text.split(",")]
    try:
        found = tuple(kind(part) for part in parts)
    except ValueError:
        raise UsageError(
            f"{flag} {text!r} is no list of whole numbers.", hint=f"{flag} 1,2"
        ) from None
    if not all(parts) or len(set(found)) < len(found):
        raise UsageError(f"{flag} {text!r} must name each value once, with commas between them.")
    return found


def collect(
    *models: Annotated[str, Parameter(help="Networks whose own tasks are measured.")],
    op: Annotated[
        tuple[str, ...],
        Parameter(
            help="Family of operators, conv2d say; repeat for several, or `all`.",
            negative="",
            consume_multiple=False,
            show_default=False,
        ),
    ] = (),
    samples: Annotated[int, Parameter(help="Candidates to measure per family.")] = 200,
    budget: Annotated[
        str,
        Parameter(help="Total of this command, earlier runs included: 90s, 10m, or a number."),
    ] = "10m",
    design_flags: DesignFlags = DesignFlags(),
    model_flags: MeteredFlags = MeteredFlags(),
    flags: CommonFlags = CommonFlags(),
) -> None:
    """Measure operators in many configurations and settings, for predictors to learn from.

    Results are written to the database; those with other threads, caches or neighbours are kept
    apart. With --power each kernel also runs in a loop for some seconds while a meter is read. The
    same command again goes on where the last one stopped.
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

"""`tilewright profile`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import (
    ArtifactFlags,
    ChoiceFlags,
    ProfiledFlags,
    SharedFlags,
)
from tilewright.cli.optimize import MODEL_HELP, checked_beside
from tilewright.cli.work import working
from tilewright.core.output_files import write_text

PAGE = "profile.html"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MoreFlags:
    """What is measured of a network beside times and energy."""

    memory: Annotated[
        bool,
        Parameter(
            help="Also measure peak memory, in a separate process.",
            negative="",
            show_default=False,
        ),
    ] = False
    beside: Annotated[
        str | None,
        Parameter(
            help="Also time it while this MODEL, or artifact, runs on other cores without pause; "
            "--threads must leave some. The precision, libraries, settings and --max-error are "
            "those of both; an artifact is as it was compiled."
        ),
    ] = None
    beside_threads: Annotated[
        int | None, Parameter(help="With --beside, the threads of that [default: 1].")
    ] = None

    def __post_init__(self) -> None:
        checked_beside(self.beside, self.beside_threads)


def profile(
    model: Annotated[str, Parameter(help=f"{MODEL_HELP[:-1]}, or an artifact.")],
    /,
    *,
    choice: ChoiceFlags = ChoiceFlags(),
    more: MoreFlags = MoreFlags(),
    model_flags: ProfiledFlags = ProfiledFlags(),
    artifact_flags: ArtifactFlags = ArtifactFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Show where a network's time goes, task by task, and what limits each.

    With --out a page with pictures is written as profile.html: the network call by call, the memory
    that each call needs, each task beside the machine's limits. With --beside it is told by how
    much the network, its calls, and what runs beside slow each other down.
    """
    with working(flags, model_flags) as work:
        work.session.verify = artifact_flags.verify
        result = work.session.profile(
            model,
            options=model_flags.options(flags.seed),
            settings=choice.settings,
            max_error=choice.max_error,
            meter=model_flags.meter_name,
            memory=more.memory,
            beside=None if more.beside is None else (more.beside, more.beside_threads or 1),
        )
        if flags.out is not None:
            from tilewright.report import html

            write_text(flags.out / PAGE, html.render_profile(result))
        pages = [f"Report: {flags.out / PAGE}"] if flags.out else []
        work.tell("profile", result, remarks=pages)

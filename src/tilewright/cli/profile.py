"""`tilewright profile`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import (
    ArtifactFlags,
    ChoiceFlags,
    ProfiledFlags,
    SharedFlags,
)
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.work import working
from tilewright.core.output_files import write_text

PAGE = "profile.html"


def profile(
    model: Annotated[str, Parameter(help=f"{MODEL_HELP[:-1]}, or an artifact.")],
    /,
    *,
    choice: ChoiceFlags = ChoiceFlags(),
    memory: Annotated[
        bool,
        Parameter(
            help="Also measure peak memory, in a separate process.",
            negative="",
            show_default=False,
        ),
    ] = False,
    model_flags: ProfiledFlags = ProfiledFlags(),
    artifact_flags: ArtifactFlags = ArtifactFlags(),
    flags: SharedFlags = SharedFlags(),
) -> None:
    """Show where a network's time goes, task by task, and what limits each.

    With --out a page with pictures is written as profile.html: the network call by call, the memory
    that each call needs, each task beside the machine's limits.
    """
    with working(flags, model_flags) as work:
        work.session.verify = artifact_flags.verify
        result = work.session.profile(
            model,
            options=model_flags.options(flags.seed),
            settings=choice.settings,
            max_error=choice.max_error,
            meter=model_flags.meter_name,
            memory=memory,
        )
        if flags.out is not None:
            from tilewright.report import html

            write_text(flags.out / PAGE, html.render_profile(result))
        pages = [f"Report: {flags.out / PAGE}"] if flags.out else []
        work.tell("profile", result, remarks=pages)

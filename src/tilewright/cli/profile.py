"""`tilewright profile`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.answers import answer_of
from tilewright.cli.flags import ArtifactFlags, ChoiceFlags, MeteredFlags, SharedFlags
from tilewright.cli.optimize import MODEL_HELP
from tilewright.cli.output import emit
from tilewright.cli.work import working


def profile(
    model: Annotated[str, Parameter(help=f"{MODEL_HELP[:-1]}, or an artifact.")],
    /,
    *,
    choice: ChoiceFlags | None = None,
    memory: Annotated[
        bool,
        Parameter(
            help="Also measure peak memory, in a process of its own.",
            negative="",
            show_default=False,
        ),
    ] = False,
    model_flags: MeteredFlags | None = None,
    artifact_flags: ArtifactFlags | None = None,
    flags: SharedFlags | None = None,
) -> int:
    """Show where a network's time goes, task by task, and what limits each."""
    flags, model_flags = flags or SharedFlags(), model_flags or MeteredFlags()
    choice, options = choice or ChoiceFlags(), model_flags.options(flags.seed)
    with working(flags, target=model_flags.target, tracker=model_flags.tracker) as work:
        work.session.verify = (artifact_flags or ArtifactFlags()).verify
        result = work.session.profile(
            model,
            options=options,
            settings=choice.settings,
            max_error=choice.max_error,
            meter=model_flags.meter_name,
            memory=memory,
        )
    emit(answer_of("profile", result, work), flags)
    return 0

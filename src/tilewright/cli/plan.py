"""`tilewright plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import AnswerFlags
from tilewright.cli.work import working


def plan(
    file: Annotated[Path, Parameter(help="A scheduling problem (.json).")],
    /,
    *,
    planner: Annotated[
        str | None,
        Parameter(
            help="auto (the default), sequential, heft, threads, ios, nash, chain_dp, cpsat, "
            "or another package's (see doctor)."
        ),
    ] = None,
    seconds: Annotated[int, Parameter(help="The longest that a planner searches.")] = 10,
    flags: AnswerFlags = AnswerFlags(),
) -> None:
    """Say what runs where, beside what: a schedule of the calls of a problem on its devices, what
    it takes, and what there was to gain; nothing is measured."""
    with working(flags) as work:
        work.tell("plan", work.session.plan(file, planner, seconds))

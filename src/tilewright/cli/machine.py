"""`tilewright doctor` and `tilewright targets`: what this machine can do."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tilewright.cli.flags import StoredFlags, ThreadedFlags
from tilewright.cli.output import Answer
from tilewright.cli.work import working
from tilewright.report.views import CONTROLS, TARGETS


def doctor(*, flags: StoredFlags = StoredFlags()) -> int:
    """Check this machine and this installation; exit with 1 if something will not work."""
    with working(flags) as work:
        result = work.session.doctor()
        work.tell("doctor", result)
    return int(any(check.status == "problem" for check in result.checks))


def targets(
    *,
    controls: Annotated[
        bool,
        Parameter(
            negative="",
            help="List what can be set on this machine instead: cores, threads, clocks, power, "
            "caches, what GPUs have; in which range, how, and whether this process may.",
        ),
    ] = False,
    flags: ThreadedFlags = ThreadedFlags(),
) -> None:
    """List what --target accepts on this machine."""
    with working(flags) as work:
        if controls:
            found = work.session.controls()
            data, rows = {"controls": found}, CONTROLS.of(found)
        else:
            listed = work.session.targets()
            data, rows = {"targets": listed}, TARGETS.of(listed)
        work.answer = Answer(command="targets", data=data, rows=rows)

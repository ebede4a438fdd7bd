"""`tilewright doctor` and `tilewright targets`: what this machine can do."""

from __future__ import annotations

from tilewright.cli.flags import StoredFlags, ThreadedFlags
from tilewright.cli.output import Answer
from tilewright.cli.work import working
from tilewright.report.views import TARGETS


def doctor(*, flags: StoredFlags = StoredFlags()) -> int:
    """Check this machine and this installation; exit with 1 if something will not work."""
    with working(flags) as work:
        result = work.session.doctor()
        work.tell("doctor", result)
    return int(any(check.status == "problem" for check in result.checks))


def targets(*, flags: ThreadedFlags = ThreadedFlags()) -> None:
    """List what --target accepts on this machine."""
    with working(flags) as work:
        rows = work.session.targets()
        work.answer = Answer(command="targets", data={"targets": rows}, rows=TARGETS.of(rows))

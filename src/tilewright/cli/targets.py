"""`tilewright targets`."""

from __future__ import annotations

from tilewright.cli.flags import ThreadedFlags
from tilewright.cli.output import Answer
from tilewright.cli.work import working
from tilewright.report.views import targets_table


def targets(*, flags: ThreadedFlags = ThreadedFlags()) -> None:
    """List what --target takes on this machine."""
    with working(flags) as work:
        rows = work.session.targets()
        work.answer = Answer(command="targets", data={"targets": rows}, rows=targets_table(rows))

"""`tilewright targets`."""

from __future__ import annotations

from tilewright.cli.flags import ThreadedFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.report import views


def targets(*, flags: ThreadedFlags | None = None) -> int:
    """List what --target takes on this machine."""
    flags = flags or ThreadedFlags()
    with working(flags) as work:
        rows = work.session.targets()
    answer = Answer(
        command="targets",
        data={"targets": rows},
        rows=views.targets_table(rows),
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 0

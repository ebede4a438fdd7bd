"""`tilewright doctor`."""

from __future__ import annotations

from tilewright.cli.answers import answer_of
from tilewright.cli.flags import StoredFlags
from tilewright.cli.output import emit
from tilewright.cli.work import working


def doctor(*, flags: StoredFlags | None = None) -> int:
    """Check this machine and this installation; exit with 1 when something will not work."""
    flags = flags or StoredFlags()
    with working(flags) as work:
        result = work.session.doctor()
    emit(answer_of("doctor", result, work), flags)
    return 1 if any(check.status == "problem" for check in result.checks) else 0

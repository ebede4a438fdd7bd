"""`tilewright doctor`."""

from __future__ import annotations

from tilewright.cli.flags import StoredFlags
from tilewright.cli.work import working


def doctor(*, flags: StoredFlags = StoredFlags()) -> int:
    """Check this machine and this installation; exit with 1 when something will not work."""
    with working(flags) as work:
        result = work.session.doctor()
        work.tell("doctor", result)
    return int(any(check.status == "problem" for check in result.checks))

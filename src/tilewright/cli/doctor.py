"""`tilewright doctor`."""

from __future__ import annotations

from tilewright.cli.flags import StoredFlags
from tilewright.cli.output import Answer, emit
from tilewright.cli.work import working
from tilewright.report import views


def doctor(*, flags: StoredFlags | None = None) -> int:
    """Check this machine and this installation; exit with 1 when something will not work."""
    flags = flags or StoredFlags()
    with working(flags) as work:
        result = work.session.doctor()
    checks = views.doctor_table(result)
    answer = Answer(
        command="doctor",
        data=result,
        rows=checks,
        tables=(checks, views.environment_table(result.environment)),
        warnings=work.warnings,
    )
    emit(answer, flags)
    return 1 if any(check.status == "problem" for check in result.checks) else 0

"""A verb's answer from its result: the tables with which the result shows itself everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.cli.output import Answer
from tilewright.cli.warn import merged
from tilewright.cli.work import Work
from tilewright.report.displays import page


def answer_of(
    command: str,
    result: object,
    work: Work | None = None,
    *,
    data: Any = None,
    remarks: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Answer:
    """What to print of a result; warnings that were not shown while it was made are shown now.

    `data` is what json holds where that is not the result itself; `remarks` and `warnings` are
    added to the page's own.
    """
    shown = page(result)
    if shown is None:
        raise TypeError(f"{type(result).__name__} has no page")
    before = work.warnings if work is not None else ()
    return Answer(
        command=command,
        data=result if data is None else data,
        rows=shown.rows,
        tables=shown.tables,
        remarks=(*shown.notes, *remarks),
        warnings=merged(before, (*shown.warnings, *warnings)),
    )

"""What changed since the last run of a network."""

from __future__ import annotations

from datetime import datetime

from tilewright.core.accounts import LastRun
from tilewright.report import shown
from tilewright.report.tables import Column, Heading

CHANGES = Heading(
    title="Tasks with another kernel",
    columns=(
        Column(field="task", label="task"),
        Column(field="before_s", label="then", show=shown.seconds, number=True),
        Column(field="after_s", label="now", show=shown.seconds, number=True),
        Column(field="before", label="kernel then"),
        Column(field="after", label="kernel now"),
    ),
)


def sentence(last: LastRun, latency_s: float) -> str:
    """How fast the network was then and is now, and how many kernels are others."""
    count = len(last.changes)
    changed = f"{count or 'no'} task{'' if count == 1 else 's'}"
    return (
        f"Last run ({datetime.fromtimestamp(last.at):%d %B %Y, %H:%M}): "
        f"{shown.seconds(last.latency_s)}, now {shown.seconds(latency_s)} "
        f"({shown.ratio(last.latency_s / latency_s)} the speed); {changed} with another kernel."
    )

"""The rounds of a race, in each of which every network had its turn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tilewright.core.accounts import RoundTimes
from tilewright.report import shown
from tilewright.report.vega import Chart

_ROW_PIXELS = 58
_COLOURS = ("var(--best)", "var(--s0)", "var(--s1)", "var(--s2)")


def chart(rounds: Sequence[RoundTimes]) -> Chart | None:
    """A row per network: each round a dot, their median a bar; None with fewer than two networks,
    or one round."""
    if len(rounds) < 2 or min(len(times.rounds_s) for times in rounds) < 2:
        return None
    dots = [
        {
            "name": times.name,
            "round": number,
            "time_s": time_s,
            "told": shown.seconds(time_s),
            "colour": _COLOURS[min(row, len(_COLOURS) - 1)],
        }
        for row, times in enumerate(rounds)
        for number, time_s in enumerate(times.rounds_s, 1)
    ]
    middle = {times.name: median(times.rounds_s) for times in rounds}
    medians = [
        {"name": name, "time_s": time_s, "told": shown.seconds(time_s)}
        for name, time_s in middle.items()
    ]
    return Chart(
        name="rounds",
        label="The rounds of the race",
        rows={"rounds": dots, "medians": medians},
        height=_ROW_PIXELS * len(rounds),
    )

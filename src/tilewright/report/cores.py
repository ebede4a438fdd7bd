"""How many cores suffice: turning points and times as tables, times as charts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tilewright.core.sufficient_cores import CoresResult, CoresRow
from tilewright.report import shown
from tilewright.report.tables import Column, Table, records_of
from tilewright.report.vega import SERIES, Chart

_MOST_PANELS = 12


def points_table(found: CoresResult) -> Table:
    """A row for each turning point: measured and told over the same numbers of cores, their
    difference, and the one that is predicted over all numbers."""
    columns = (
        *_place(found),
        Column(field="gain", label="may take longer by", show=shown.percent, number=True),
        Column(field="measured", label="measured", number=True),
        Column(field="told", label="told", number=True),
        Column(field="steps", label="steps off", number=True),
        Column(
            field="predicted",
            label=f"of {', '.join(map(str, found.cores))}",
            number=True,
            show_record=lambda row: f"{row['predicted']}{' *' if row['extrapolated'] else ''}",
        ),
        Column(
            field="low",
            label="between",
            number=True,
            show_record=lambda row: f"{row['low']} to {row['high']}",
        ),
    )
    records = tuple(
        {**_of(row), "source": row.source, **record}
        for row in found.rows
        for record in records_of(row.points)
    )
    return Table(columns=columns, records=records, title=f"Cores that suffice for {found.model}")


def times_table(found: CoresResult) -> Table:
    """A row for each task beside each neighbour: measured, where it was, and told seconds by the
    number of cores."""
    columns = (
        *_place(found),
        Column(field="source", label="told from"),
        *(Column(field=f"{n}", label=f"{n}", number=True) for n in found.cores),
    )
    records = tuple(
        {
            **_of(row),
            "source": row.source,
            **{
                f"{each.cores}": ", ".join(
                    shown.seconds(time_s)
                    for time_s in (each.measured_s, each.predicted_s)
                    if time_s is not None
                )
                for each in row.times
            },
        }
        for row in found.rows
    )
    return Table(columns=columns, records=records, title="Times by cores: measured, told")


def notes(found: CoresResult) -> tuple[str, ...]:
    """What a reader must know of the numbers."""
    steps = [point.steps for row in found.rows for point in row.points if point.steps is not None]
    near = sum(abs(each) <= 1 for each in steps)
    return tuple(
        filter(
            None,
            (
                f"{near} of {len(steps)} turning points are told within one step." if steps else "",
                f"* Extrapolated: this process has {found.machine_cores} cores."
                if max(found.cores) > found.machine_cores
                else "",
                f"Not measured: {', '.join(found.unmeasured)}." if found.unmeasured else "",
            ),
        )
    )


def hues(found: CoresResult) -> dict[str, str]:
    """The name of each neighbour's colour in every chart, a variable of the style sheet."""
    names = dict.fromkeys(row.beside for row in found.rows)
    return dict(zip_longest(names, SERIES[: len(names)], fillvalue="faded"))


def charts(found: CoresResult) -> Sequence[tuple[str, Chart]]:
    """Time by the number of cores, a chart for each of the first tasks and each setting of
    controls."""
    panels: dict[tuple[str, str], list[CoresRow]] = {}
    for row in found.rows:
        panels.setdefault((row.task, row.held), []).append(row)
    colours = hues(found)
    return [
        (", ".join(filter(None, place)), _chart(place[0], rows, colours))
        for place, rows in list(panels.items())[:_MOST_PANELS]
    ]


def _chart(task: str, rows: Sequence[CoresRow], colours: dict[str, str]) -> Chart:
    points = [
        {
            "beside": row.beside,
            "cores": each.cores,
            "told_s": each.predicted_s,
            "low_s": each.low_s,
            "high_s": each.high_s,
            "measured_s": each.measured_s,
            "colour": f"var(--{colours[row.beside]})",
            "told": shown.seconds(each.predicted_s),
            "measured": shown.seconds(each.measured_s),
            "enough": "enough" if each.cores == row.points[0].predicted else "",
        }
        for row in rows
        for each in row.times
    ]
    measured = [point for point in points if point["measured_s"] is not None]
    label = f"Time of {task} by the number of cores"
    return Chart(name="cores", label=label, rows={"told": points, "measured": measured})


def _place(found: CoresResult) -> list[Column]:
    """Where in the grid; without what is the same everywhere."""
    held = any(row.held for row in found.rows)
    return [
        Column(field="task", label="task"),
        Column(field="beside", label="beside"),
        *([Column(field="held", label="held")] if held else []),
    ]


def _of(row: CoresRow) -> dict[str, object]:
    return {
        "task": row.task,
        "count": row.count,
        "implementation": row.implementation,
        "beside": row.beside,
        "held": row.held,
    }

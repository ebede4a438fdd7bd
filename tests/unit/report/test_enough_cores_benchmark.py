"""The tables of several studies of cores in one file."""

from __future__ import annotations

from dataclasses import replace

from enough_cores import told
from helpers.fakes.forecasts import CORES
from tilewright.core.codec import to_builtins


def test_studies_of_other_numbers_of_cores_stand_in_one_table() -> None:
    """A command that is repeated with other `--cores` goes on in the same file."""
    fewer = tuple(replace(row, times=row.times[:2]) for row in CORES.rows)
    times, points, near = told(to_builtins([CORES, replace(CORES, rows=fewer)]))
    first, *_, last = times.splitlines()[2:]
    assert first.endswith("| none | 1000.0, 1000.0 | 500.0, 500.0 | 250.0 |")
    assert last.endswith("| stream | 1000.0, 1000.0 | 500.0 |  |")
    assert points.count("| 2, 1 | 4 (2 to 4) |") == 2, "only of measured ones"
    assert near == "The same number: 0 of 2; one step off at most: 2."

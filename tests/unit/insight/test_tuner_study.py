"""Comparing tuners on a stored sweep, as a session does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fakes.levels import relu
from helpers.fakes.measuring import PLACEMENT
from tilewright.core.errors import UsageError
from tilewright.core.events import Event, Note
from tilewright.insight.studies import study_tuners
from tilewright.kernels.knobs import split
from tilewright.search.sweeps.sweep import Sweep, listed_part, sweep_text


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """48 settings, the later the slower."""
    knobs = (split("tile", 48, policy="candidates", candidates=range(1, 49)),)
    rows = [({"tile": tile}, 1e-5 * tile) for tile in range(1, 49)]
    part, seconds = listed_part("made_up", knobs, rows)
    whole = Sweep(name="slope", part=part, seconds=seconds, workload=relu(), placement=PLACEMENT)
    path = tmp_path / "slope.json"
    path.write_text(sweep_text(whole))
    return path


def test_a_tuner_that_is_less_than_its_name_says_so(sweep: Path) -> None:
    events: list[Event] = []
    names = ("random", "xgb_itervar")
    rows = study_tuners(names, sweep, seeds=1, processes=1, events=events.append).rows
    assert [row.tuner for row in rows] == ["random"] * 4 + ["xgb_itervar"] * 4
    assert all(row.sweep == "slope" and row.regret_median >= 0 for row in rows)
    (note,) = [event.message for event in events if isinstance(event, Note)]
    assert note.startswith("xgb_itervar: ") and "knob features" in note


def test_no_seeds_and_unknown_names_are_refused(sweep: Path) -> None:
    for seeds, names, said in ((0, ("random",), "--seeds"), (1, ("randum",), "randum")):
        with pytest.raises(UsageError, match=said):
            study_tuners(names, sweep, seeds=seeds, processes=1, events=[].append)

"""Stored sweeps, replay, and what the shipped ones say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.tuning import FORMS, workload
from tilewright.core.errors import InternalError, ModelError
from tilewright.core.records import Candidate, Failure, Measurement, Settings
from tilewright.core.targets import Binding
from tilewright.kernels.knobs import choice, split
from tilewright.kernels.search_space import KnobSpace, Part
from tilewright.search.sweeps.sweep import (
    Sweep,
    listed_part,
    parse_sweep,
    read_sweeps,
    regret_curve,
    replayed,
    shipped_sweeps,
    sweep_text,
)
from tilewright.search.tuners.base import TuningTask
from tilewright.search.tuners.default import DefaultTuner
from tilewright.search.tuners.unguided import RandomTuner

KNOBS = (split("tile", 64), split("other", 48), choice("order", ("x", "y", "z")))


def truth(settings: Settings) -> float | None:
    tile, other = int(settings["tile"]), int(settings["other"])
    if tile * other > 1024:
        return None
    bowl = (np.log2(tile) - 4) ** 2 + (np.log2(other) - 3) ** 2
    return 1e-3 * (1.0 + 0.2 * bowl + 0.3 * (settings["order"] != "y"))


def made_up(again: bool = False) -> Sweep:
    space = KnobSpace(knobs=KNOBS)
    rows = [(space.settings(n), truth(space.settings(n))) for n in space]
    part, seconds = listed_part("made", KNOBS, rows)
    return Sweep(name="bowl", part=part, seconds=seconds, again={0: 5e-4} if again else {})


def test_a_sweep_answers_what_was_measured() -> None:
    sweep = made_up()
    for number in sweep.seconds:
        outcome = sweep.outcome(sweep.space.candidate(number))
        expected = truth(sweep.part.knobs.settings(number))
        if expected is None:
            assert isinstance(outcome, Failure) and outcome.message == "failed in the sweep"
        else:
            assert isinstance(outcome, Measurement) and outcome.latency_s == expected
    foreign = Candidate(implementation="made", settings=(("tile", 3),), forms=())
    outcome = sweep.outcome(foreign)
    assert isinstance(outcome, Failure) and outcome.message == "not in the sweep"


def test_worth_is_judged_by_the_second_look() -> None:
    sweep = made_up(again=True)
    assert sweep.worth_s(0) == 5e-4 == sweep.best_s


def test_only_swept_settings_are_valid() -> None:
    space = KnobSpace(knobs=KNOBS)
    rows = [(space.settings(n), 1.0) for n in range(0, space.range_length, 3)]
    part, seconds = listed_part("made", KNOBS, rows)
    sweep = Sweep(name="third", part=part, seconds=seconds)
    assert sweep.space.listed is not None
    assert sweep.space.listed.tolist() == sorted(seconds) == list(range(0, space.range_length, 3))


def test_regret_falls_and_ends_at_nothing() -> None:
    sweep = made_up()
    curve = regret_curve(RandomTuner, sweep, seed=3, measurements=sweep.size + 20)
    assert len(curve) == sweep.size + 20
    finite = curve[np.isfinite(curve)]
    assert (np.diff(finite) <= 1e-12).all() and curve[-1] == 0.0


def test_a_tuner_that_repeats_itself_gains_nothing() -> None:
    class Stuck:
        def __init__(self, task: TuningTask) -> None:
            self.candidate = task.space.candidate(0)

        def ask(self, count: int) -> list[Candidate]:
            return [self.candidate]

        def tell(self, outcomes: object) -> None:
            pass

    sweep = made_up()
    curve = regret_curve(Stuck, sweep, seed=0, measurements=50)
    assert np.ptp(curve) == 0.0 and curve[0] > 0


TIMES_S = {1: None, 2: 4e-3, 3: 2e-3, 4: 8e-3, 5: 3e-3, 6: 1e-3}


class Listed:
    """A tuner that goes through its numbers of knob values, and keeps how many it was asked for."""

    asked: list[int]

    def __init__(self, task: TuningTask, order: list[int]) -> None:
        self.waiting = [task.space.candidate(number) for number in order]
        self.asked = []

    def ask(self, count: int) -> list[Candidate]:
        self.asked.append(count)
        found, self.waiting = self.waiting[:count], self.waiting[count:]
        return found

    def tell(self, outcomes: object) -> None:
        pass


def listed() -> Sweep:
    knobs = (split("tile", 6, policy="candidates", candidates=tuple(TIMES_S)),)
    part, seconds = listed_part("made", knobs, [({"tile": n}, s) for n, s in TIMES_S.items()])
    return Sweep(name="six", part=part, seconds=seconds)


def test_regret_by_hand() -> None:
    """The best takes 1 ms. A failure has no time; then the choice is the fastest so far, and a
    tuner that stops keeps its last one."""
    curve = regret_curve(
        lambda task: Listed(task, [0, 1, 3, 2, 4]), listed(), seed=0, measurements=7
    )
    assert curve.tolist() == [np.inf, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    curve = regret_curve(lambda task: Listed(task, [1, 2]), listed(), seed=0, measurements=4)
    assert curve.tolist() == [3.0, 1.0, 1.0, 1.0], "the last one, not the one before"
    none = regret_curve(lambda task: Listed(task, []), listed(), seed=0, measurements=2)
    assert none.tolist() == [np.inf, np.inf]


def test_no_more_is_asked_for_than_may_be_measured() -> None:
    made: list[Listed] = []

    def tuner(task: TuningTask) -> Listed:
        made.append(Listed(task, [1] * 30))
        return made[-1]

    assert len(regret_curve(tuner, listed(), seed=0, measurements=19)) == 19
    assert made[0].asked == [8, 8, 3]


def test_shares_of_a_sweep_over_seeds() -> None:
    """Of six settings a share of 0.1 is one, of 0.5 three. The three seeds' tuners begin at other
    settings; the median is the middle one's, and nine tenths lie between the upper two."""
    orders = {0: [5, 1, 1], 1: [2, 1, 4], 2: [1, 4, 4]}

    def tuner(task: TuningTask) -> Listed:
        return Listed(task, orders[task.seed])

    first, half = replayed("t", tuner, listed(), seeds=3, shares=(0.1, 0.5))
    assert (first.tuner, first.sweep, first.measured_share) == ("t", "six", 0.1)
    assert (first.regret_median, half.regret_median) == pytest.approx((1.0, 1.0))
    assert first.regret_p90 == pytest.approx(1 + 0.8 * 2), "of 0, 1 and 3"
    assert half.regret_p90 == pytest.approx(1 + 0.8 * 1), "of 0, 1 and 2"


def test_the_default_beats_random_on_a_smooth_sweep() -> None:
    regret = {
        (row.tuner, row.measured_share): row.regret_median
        for name, factory in (("default", DefaultTuner), ("random", RandomTuner))
        for row in replayed(name, factory, made_up(), seeds=5, shares=(0.15, 0.25))
    }
    assert regret["default", 0.25] <= regret["random", 0.25]
    assert regret["default", 0.25] < 0.05


def test_text_both_ways() -> None:
    task = workload(64)
    part = Part(name="gone", forms=FORMS, knobs=KnobSpace(knobs=KNOBS))
    seconds = {n: truth(part.knobs.settings(n)) for n in range(40)}
    sweep = Sweep(
        name="s",
        part=part,
        seconds=seconds,
        again={3: 0.00123456},
        origin="here",
        workload=task,
        placement=PLACEMENT,
    )
    back = parse_sweep(sweep_text(sweep))
    assert (
        back.name == "s"
        and back.workload == task
        and back.placement == replace(PLACEMENT, binding=Binding())
    )
    assert back.again == {3: 0.001235}
    assert set(back.seconds) == set(seconds)
    assert back.part.knobs.knobs == KNOBS and back.part.forms == FORMS
    assert back.part.estimate_s is None, "the implementation is gone"
    for number, value in seconds.items():
        assert back.seconds[number] == (None if value is None else pytest.approx(value, rel=1e-3))


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"format": "tilewright sweep 9"})])
def test_a_file_that_is_no_sweep(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ModelError, match="no sweep"):
        read_sweeps(tmp_path / "x.json")


def test_a_missing_file_and_a_broken_table(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        read_sweeps(tmp_path / "none.json")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ModelError):
        read_sweeps(tmp_path / "x.parquet")


def test_a_table_of_another_program_is_a_sweep_per_device(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "device": ["a", "a", "a", "b", "b"],
            "block": [1, 2, 4, 1, 2],
            "fixed": [7] * 5,
            "time_ms": [3.0, None, 1.0, 2.0, 5.0],
        }
    )
    frame.write_parquet(tmp_path / "mine.parquet")
    one, other = read_sweeps(tmp_path / "mine.parquet")
    assert (one.name, other.name) == ("a", "b") and one.origin == "mine.parquet"
    assert [knob.name for knob in one.part.knobs.knobs] == ["block"]
    assert one.seconds == {0: 3e-3, 1: None, 2: 1e-3} and one.best_s == 1e-3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"block": [1, 2, 1]}, "twice"),
        ({"block": [1, 2, None]}, "without a value of block"),
        ({"time_ms": [None, None, None]}, "no setting has a time"),
        ({"time_ms": [1.0, -2.0, 1.0]}, "not positive"),
    ],
)
def test_tables_that_are_no_sweep(tmp_path: Path, columns: dict[str, list], message: str) -> None:
    whole = {"device": ["a"] * 3, "block": [1, 2, 4], "time_ms": [1.0, 2.0, 3.0]}
    types = {"device": pl.String, "block": pl.Int64, "time_ms": pl.Float64}
    pl.DataFrame({**whole, **columns}, schema=types).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(ModelError, match=message):
        read_sweeps(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"numbers": [0, 1]}, "it has 2 numbers and 3 times"),
        ({"numbers": [0, 1, 1]}, "a number twice"),
        ({"numbers": [0, 1, 1 << 40]}, f"no number {1 << 40}"),
        ({"numbers": [0, 1, -1]}, "no number -1"),
        ({"again": [[5, 1e-3]]}, "second look at number 5"),
        ({"seconds": [None, None, None], "again": []}, "no setting has a time"),
        ({"numbers": [], "seconds": [], "again": []}, "no setting has a time"),
        ({"seconds": [1e-3, 0.0, 1e-3]}, "not positive"),
    ],
)
def test_sweeps_whose_numbers_do_not_fit(fields: dict[str, list], message: str) -> None:
    part = Part(name="gone", forms=FORMS, knobs=KnobSpace(knobs=KNOBS))
    sweep = Sweep(
        name="s", part=part, seconds={0: 1e-3, 1: 2e-3, 2: None}, again={1: 1e-3},
        workload=workload(64), placement=PLACEMENT,
    )  # fmt: skip
    given = json.loads(sweep_text(sweep))
    with pytest.raises(ValueError, match=message):
        parse_sweep(json.dumps({**given, **fields}))


def test_estimates_are_those_of_todays_knobs_or_none() -> None:
    sweep = next(one for one in shipped_sweeps() if one.part.estimate_s is not None)
    written = json.loads(sweep_text(sweep))
    assert parse_sweep(json.dumps(written)).part.estimate_s is not None
    written["knobs"][0]["name"] = "of_before"
    assert parse_sweep(json.dumps(written)).part.estimate_s is None


def test_a_sweep_of_a_foreign_program_has_no_text() -> None:
    for foreign in (listed(), replace(listed(), workload=workload(64))):
        with pytest.raises(InternalError, match="six is a foreign sweep"):
            sweep_text(foreign)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 4], "split"),
        ([16, 32], "choice"),
        ([0, 1, 2], "choice"),
        ([0.5, 1.0, 2.0], "choice"),
        (["a", "b", "c"], "choice"),
    ],
)
def test_three_sizes_or_more_are_a_split(tmp_path: Path, values: list, kind: str) -> None:
    """Neighbours of a split are the next larger and smaller ones; choices have no order."""
    rows = {"device": ["a"] * len(values), "knob": values, "time_ms": [1.0] * len(values)}
    pl.DataFrame(rows).write_parquet(tmp_path / "x.parquet")
    (sweep,) = read_sweeps(tmp_path / "x.parquet")
    (knob,) = sweep.part.knobs.knobs
    assert (knob.kind, list(knob.values)) == (kind, values)


def test_the_sweeps_that_come_along() -> None:
    """Four convolutions of ResNet-50 on a machine of two threads, with second looks at the fastest,
    and today's rough estimate of each setting."""
    found = shipped_sweeps()
    assert [(sweep.name, sweep.size) for sweep in found] == [
        ("resnet50-1x1-14", 296),
        ("resnet50-3x3-56", 852),
        ("resnet50-3x3-7", 1208),
        ("resnet50-3x3-stride2-28", 1280),
    ]
    for sweep in found:
        assert sweep.placement is not None and str(sweep.placement.resources) == "2t"
        assert len(sweep.again) == 50
        first = sorted(s for s in sweep.seconds.values() if s is not None)
        assert {sweep.seconds[number] for number in sweep.again} <= set(first[:60])
        estimates_s = sweep.space.estimates_s(np.array(sorted(sweep.seconds)[:50]))
        assert estimates_s is not None and estimates_s.shape == (50,)
        assert np.isfinite(estimates_s).all() and (estimates_s > 0).all()

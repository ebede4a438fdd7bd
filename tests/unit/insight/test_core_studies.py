"""`study cores`: what is measured and what is told of it, in one row."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import pytest

from tilewright.core.budget import Budget, Limit
from tilewright.core.errors import NegativeVerdict, TargetError, UsageError
from tilewright.core.events import Event, Note
from tilewright.core.processes import ChildCrash
from tilewright.core.records import Placement
from tilewright.core.sufficient_cores import CoresResult
from tilewright.core.targets import Binding, threads_alone
from tilewright.cost.enough_cores import enough_cores
from tilewright.hardware.device import local_placement
from tilewright.hardware.holding import Held
from tilewright.insight.core_design import NEIGHBOURS, CoresDesign, neighbour_of
from tilewright.insight.core_studies import PAGE, CoresStudy
from tilewright.measure.core_grid import ALONE, Neighbour, Point
from tilewright.models import ModelOptions
from tilewright.predict.family_models import FamilyModel
from tilewright.predict.timed_on_cores import FILE, TREES, learnt, read_timed
from tilewright.store import open_store

OPERATOR = "op:relu[shape=1x64x56x56]"
HERE = local_placement()
PLACEMENT = replace(HERE, resources=threads_alone(4))
SOURCES = {"exact", "interpolated", "model", "roofline"}
SECONDS = {1: 0.008, 2: 0.0045, 4: 0.00275}
HEARD: list[Event] = []
NO_TIME, ENDLESS = Limit(measurements=0), Limit()


class Grid:
    """A device on which a call takes SECONDS by its cores, beside `stream` twice as long; it is
    `broken` where every kernel crashes."""

    broken: str = ""

    def __init__(
        self,
        _placement: Placement,
        counts: Sequence[int],
        neighbours: Sequence[Neighbour],
        *,
        seed: int,
    ) -> None:
        self.counts, self.names, self.seed = counts, [each.name for each in neighbours], seed

    def __enter__(self) -> Grid:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    @property
    def points(self) -> list[Point]:
        beside = [(count, name) for count in self.counts for name in self.names if count < 4]
        return [*((count, ALONE) for count in self.counts), *beside]

    def neighbours_s(self) -> dict[str, float]:
        return dict.fromkeys(self.names, 0.01)

    def times_s(self, kernels: Mapping[int, tuple[object, object]]) -> dict[Point, float]:
        assert list(kernels) == list(self.counts)
        if self.broken:
            raise ChildCrash(11, self.broken)
        return {
            (count, name): SECONDS[count] * (2.0 if name == "stream" else 1.0)
            for count, name in self.points
        }


HOLDS: list[tuple[Held, ...]] = []


@contextmanager
def holding(held: tuple[Held, ...], _cpus: object) -> Generator[None]:
    HOLDS.append(held)
    yield


def without_smt(held: tuple[Held, ...], cpus: tuple[int, ...]) -> tuple[int, ...]:
    """The first CPU is off."""
    return cpus[1:] if Held(control="smt", value="off") in held else cpus


@cache
def curves() -> FamilyModel:
    rows = [one for one in read_timed(FILE) if one.cores in (2, 4, 16)][::3]
    return learnt(rows, HERE.target, replace(TREES, rounds=40, rate=0.2, members=2))


def known_curves(_: object) -> FamilyModel:
    return curves()


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoresStudy]:
    for place in ("core_counts", "enough_cores_told"):
        monkeypatch.setattr(f"tilewright.predict.{place}.curve_model", known_curves)
    HEARD.clear()
    HOLDS.clear()
    with open_store("memory:") as store:
        yield CoresStudy(
            placement=PLACEMENT,
            store=store,
            events=HEARD.append,
            grids=cast("Any", Grid),
            holds=holding,
        )


def run(study: CoresStudy, limit: Limit = ENDLESS, **design: Any) -> CoresResult:
    return study.run(OPERATOR, ModelOptions(), CoresDesign(**design), limit)


def test_measured_and_told_turning_points_stand_beside_each_other(study: CoresStudy) -> None:
    found = run(study, cores=(2, 4, 8), beside=("none", "stream"), gains=(0.05, 1.0))
    assert (found.machine_cores, found.cores, found.unmeasured) == (4, (1, 2, 4, 8), ())
    alone, beside = found.rows
    assert [(each.task, each.beside, each.source) for each in found.rows] == [
        (OPERATOR, "none", "measured"), (OPERATOR, "stream", "measured"),
    ]  # fmt: skip
    assert {each.cores: each.measured_s for each in alone.times} == {**SECONDS, 8: None}
    assert {each.cores: each.measured_s for each in beside.times} == {
        1: 0.016, 2: 0.009, 4: None, 8: None,
    }  # fmt: skip
    assert [each.extrapolated for each in alone.times] == [False, False, False, True]
    told = {each.cores: each.predicted_s for each in alone.times}
    assert told[1] == 0.008, "what was measured on one core is where predictions start"
    for point, gain in zip(alone.points, (0.05, 1.0), strict=True):
        assert point.measured == enough_cores(SECONDS, gain)
        assert point.told == enough_cores({n: told[n] for n in (1, 2, 4)}, gain)
        assert point.steps == (1, 2, 4).index(point.told) - (1, 2, 4).index(point.measured)
        assert point.predicted == enough_cores(told, gain)
        assert point.low <= point.predicted <= point.high and point.extrapolated
    widths = [each.high_s / each.low_s for each in alone.times]
    assert widths[0] == 1.0 and widths == pytest.approx(sorted(widths))


def test_what_a_neighbour_costs_on_one_core_goes_along_to_others(study: CoresStudy) -> None:
    """It adds as much time on any number of cores on which the kernel streams as much."""
    dense = "op:dense[m=1,k=4096,n=4096]"
    design = CoresDesign(cores=(1, 8), beside=("none", "stream"))
    alone, beside = study.run(dense, ModelOptions(), design, Limit()).rows
    added_s = [
        b.predicted_s - a.predicted_s for a, b in zip(alone.times, beside.times, strict=True)
    ]
    assert beside.contention_bytes_per_s and alone.contention_bytes_per_s is None
    assert added_s[0] == pytest.approx(0.008) and added_s[1] == pytest.approx(0.008)
    design = CoresDesign(cores=(1,), beside="stream")
    (held,) = study.run("op:relu[shape=8]", ModelOptions(), design, Limit()).rows
    assert held.times[0].measured_s == 0.016, "caches hold its data: no scale tells that"
    assert held.contention_bytes_per_s is None


def test_without_a_budget_all_is_predicted(study: CoresStudy) -> None:
    counts = (1, 2, 4, 8, 16, 32, 64)
    found = run(replace(study, grids=cast("Any", no_grid)), NO_TIME, cores=counts, beside=("none",))
    (row,) = found.rows
    assert row.source in SOURCES and not found.unmeasured
    assert all(each.measured_s is None and each.low_s < each.high_s for each in row.times)
    (point,) = row.points
    assert (point.measured, point.told, point.steps) == (None, None, None)
    assert any("beyond 16 cores" in each.message for each in HEARD if isinstance(each, Note))


def no_grid(*_: object, **__: object) -> Grid:
    raise AssertionError("nothing is to be measured")


def test_a_network_is_studied_task_by_task_while_there_is_time(study: CoresStudy) -> None:
    design = CoresDesign(cores=(1, 2), beside=("none",))
    found = study.run("zoo:mlp", ModelOptions(), design, Limit(measurements=1))
    first, *others = found.rows
    assert first.source == "measured" and {each.source for each in others} <= SOURCES
    assert found.unmeasured == tuple(each.task for each in others) != ()


def test_neighbours_of_networks_on_codes_are_in_float32(study: CoresStudy) -> None:
    """A network is put on codes as a whole; a single operator is not."""
    place, options = replace(PLACEMENT, precision="int8"), ModelOptions(precision="int8")
    design = CoresDesign(cores=(1, 2), beside="stream")
    study = replace(study, placement=place)
    assert study.run("zoo:mlp", options, design, Limit(measurements=1)).rows[0].source == "measured"


def test_one_task_is_measured_where_neighbours_took_all_the_time(
    study: CoresStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class Slow(Grid):
        def neighbours_s(self) -> dict[str, float]:
            now[0] += 10.0
            return super().neighbours_s()

    monkeypatch.setattr(
        "tilewright.insight.core_studies.Budget", partial(Budget, clock=lambda: now[0])
    )
    design = CoresDesign(cores=(1, 2), beside="stream")
    study = replace(study, grids=cast("Any", Slow))
    first, *others = study.run("zoo:mlp", ModelOptions(), design, Limit(seconds=5.0)).rows
    assert first.source == "measured" and {each.source for each in others} <= SOURCES


def test_what_fails_is_told_and_predicted(
    study: CoresStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Grid, "broken", "out of luck")
    found = run(study, cores=(1, 2))
    assert found.unmeasured == (OPERATOR,) and {row.source for row in found.rows} <= SOURCES
    monkeypatch.setattr(Grid, "neighbours_s", broken_grid)
    with pytest.raises(NegativeVerdict, match="a neighbour could not be timed"):
        run(study, cores=(1, 2))
    assert any("out of luck" in each.message for each in HEARD if isinstance(each, Note))


def no_steps(*_: object) -> dict[Held, object]:
    return {}


def broken_grid(_grid: Grid) -> dict[str, float]:
    raise ChildCrash(11, "gone")


def test_controls_are_held_while_it_is_measured(
    study: CoresStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.insight.core_studies.checked", no_steps)
    found = run(study, cores=(1, 2), beside=("none",), clocks=("usual", "1.5GHz"))
    assert tuple(HOLDS) == ((), (Held(control="clock", value=1.5e9),))
    assert [row.held for row in found.rows] == ["", "clock=1.5GHz"]
    late = run(study, Limit(measurements=1), cores=(1, 2), beside="none", clocks=("usual", "1GHz"))
    assert [row.held for row in late.rows] == [""], "nobody predicts a clock"
    assert late.unmeasured == (OPERATOR,)


def test_without_smt_it_is_measured_on_cpus_that_stay(
    study: CoresStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.insight.core_studies.checked", no_steps)
    monkeypatch.setattr("tilewright.insight.core_studies.usable_cpus", without_smt)
    there: list[tuple[int, ...]] = []

    def grid(placement: Placement, *terms: Any, **named: Any) -> Grid:
        there.append(placement.binding.cpus)
        return Grid(placement, *terms, **named)

    two = replace(PLACEMENT, resources=threads_alone(2), binding=Binding(cpus=(0, 1)))
    study = replace(study, placement=two, grids=cast("Any", grid))
    run(study, cores=(1, 2), beside="none", clocks=("1GHz",))
    with pytest.raises(TargetError, match="without SMT 1 of 2 CPUs are left") as few:
        run(study, cores=(1, 2), beside="none", smt=("off",))
    assert few.value.hint == "Give --threads 1."
    one = replace(study, placement=replace(two, resources=threads_alone(1)))
    run(one, cores=(1,), beside="none", smt=("off",))
    assert there == [(0, 1), (1,)]


def test_each_setting_of_controls_has_its_part_of_the_budget(
    study: CoresStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.insight.core_studies.checked", no_steps)
    design = CoresDesign(cores=(1, 2), beside="none", clocks=("1GHz", "2GHz"))
    found = study.run("zoo:mlp", ModelOptions(), design, Limit(measurements=4))
    assert [row.held for row in found.rows] == ["clock=1GHz", "clock=2GHz"]


def test_a_page_is_written(study: CoresStudy, tmp_path: Path) -> None:
    study.run(OPERATOR, ModelOptions(), CoresDesign(), NO_TIME, tmp_path)
    assert "Turning points" in (tmp_path / PAGE).read_text()


def test_what_cannot_be_studied_is_refused(study: CoresStudy) -> None:
    with pytest.raises(
        TargetError, match="none of --cores 8,16 can be measured: this process has 4"
    ):
        run(study, cores=(8, 16))
    with pytest.raises(UsageError, match="no prediction knows a clock"):
        run(study, NO_TIME, clocks=("1.5GHz",))
    with pytest.raises(TargetError, match="cannot be set"):
        run(study, cache_ways=("2",))
    elsewhere = replace(PLACEMENT, device=replace(PLACEMENT.device, access="rpc"))
    with pytest.raises(UsageError, match="cores are those of this machine's CPU"):
        run(replace(study, placement=elsewhere))


@pytest.mark.parametrize(
    "wrong",
    [{"cores": (0,)}, {"gains": (0.0,)}, {"gains": "x"}, {"clocks": "fast"}, {"gains": ()},
     {"gains": ("30dB",)}, {"gains": True},
     {"beside": "streem"}, {"beside": "streamx0"}, {"beside": "nonex4"}, {"beside": ""}],
)  # fmt: skip
def test_grids_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        CoresDesign(**wrong)


def test_a_neighbour_that_nobody_knows_is_refused_with_those_near() -> None:
    with pytest.raises(UsageError, match="streem") as error:
        neighbour_of("streem")
    assert error.value.hint is not None and "stream" in error.value.hint


def test_neighbours_are_named_with_their_cores() -> None:
    assert neighbour_of("none") == ("", 1)
    assert neighbour_of("streamx4") == (NEIGHBOURS["stream"], 4)
    assert neighbour_of("op:add[shape=1x64]x2") == ("op:add[shape=1x64]", 2)
    assert neighbour_of("op:add[shape=1x64]") == ("op:add[shape=1x64]", 1)
    assert neighbour_of("op:add") == ("op:add", 1), "what it lacks is told by what reads operators"

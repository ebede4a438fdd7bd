"""`tilewright plan`: the json contract and the exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fakes.session import FakeSession
from helpers.scheduling import MICRO, mode, on_cores, plain_problem, random_problem
from tilewright.core.errors import UsageError
from tilewright.plan.network_scheduling import Wanted
from tilewright.plan.scheduling.parts import Limits, Link, ScheduleDevice
from tilewright.plan.scheduling.planning import SCHEDULERS
from tilewright.plan.scheduling.problem_file import write_problem
from tilewright.session import Session

Command = Callable[..., Any]
BRANCHES = {"a": on_cores(2), **{name: (mode(us=20), mode(cores=2, us=16)) for name in "bc"}}
FORKED = plain_problem({**BRANCHES, "d": on_cores(2)}, "a>b a>c b>d c>d", name="forked")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """A saved problem: two branches that two cores speed up little."""
    write_problem(FORKED, tmp_path / "forked.json")
    return "forked.json"


@pytest.mark.parametrize("planner", SCHEDULERS.names())
def test_json_has_what_was_promised(tilewright: Command, saved: str, planner: str) -> None:
    ran = tilewright("plan", saved, "--planner", planner, "--format", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["command"] == "plan"
    data = document["data"]
    assert (data["name"], data["objective"], data["width"]) == ("forked", "latency", 2)
    assert data["sequential"] == pytest.approx(34 * MICRO)
    assert data["work_over_span"] == pytest.approx(34 / 18)
    assert data["value"] == data["latency_s"] == max(slot["end_s"] for slot in data["slots"])
    assert data["value"] <= data["sequential"] and data["bound"] <= data["value"]
    assert {slot["call"] for slot in data["slots"]} == set("abcd")
    assert data["energy_j"] is None and "idle_w" in data["energy_reason"]
    (device,) = data["devices"]
    computed = sum(len(s["cores"]) * (s["end_s"] - s["begin_s"]) for s in data["slots"])
    assert device["busy"] == pytest.approx(computed / 2 / data["latency_s"])
    (chosen,) = [each for each in data["front"] if each["chosen"]]
    assert chosen["latency_s"] == pytest.approx(data["latency_s"])
    assert chosen["memory_bytes"] == device["peak_memory_bytes"]
    assert data["considered"] >= len(data["front"])


def test_time_calls_is_a_wish(tilewright: Command, session: FakeSession, saved: str) -> None:
    for words in ((), ("--time-calls",)):
        assert tilewright("plan", saved, "--planner", "heft", *words).code == 0
    assert [c["time_calls"] for c in session.calls if "time_calls" in c] == [False, True]


def test_merging_is_a_wish(tilewright: Command, session: FakeSession, saved: str) -> None:
    for words in ((), ("--merge",)):
        tilewright("plan", saved, *words)
    assert [c["merge"] for c in session.calls if "merge" in c] == [False, True]


@pytest.mark.parametrize("format", ["table", "csv", "md"])
def test_formats(tilewright: Command, saved: str, format: str) -> None:
    ran = tilewright("plan", saved, "--planner", "heft", "--format", format)
    assert ran.code == 0
    if format == "csv":
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        assert [row["call"] for row in rows] == ["a", "b", "c", "d"]
    else:
        assert "22 µs of latency" in ran.out and "lower bound" in ran.out
        assert "One call after the other takes 1.55× what this schedule takes" in ran.out
        assert "nobody knows the idle_w" in ran.out


def test_what_else_could_be_chosen_is_listed_and_drawn(tilewright: Command, tmp_path: Path) -> None:
    modes = (mode("fast", us=10, weight_bytes=2 << 20), mode("slow", us=30, weight_bytes=1 << 20))
    devices = (ScheduleDevice(name="fast"), ScheduleDevice(name="slow", price_per_hour=1.0))
    two = plain_problem({"a": modes}, name="two", devices=devices)
    write_problem(two, tmp_path / "two.json")
    ran = tilewright("plan", "two.json", "--planner", "heft", "--out", "kept")
    assert ran.code == 0, ran.err
    assert "Best in something" in ran.out and "30 µs" in ran.out and "1 MiB" in ran.out
    assert "Of 2 schedules that were considered 2 are listed: the plan, and those" in ran.out
    page = (tmp_path / "kept" / "plan.html").read_text()
    assert page.count('<div class="chart front"') == 1
    assert "Memory against latency" in page and "Energy against latency" not in page


def test_a_front_is_searched_for(tilewright: Command, tmp_path: Path) -> None:
    """What no planner comes by for the least latency: of two calls one on the thrifty device."""
    thrifty = (mode("fast", us=10, energy_j=5e-6), mode("slow", us=30, energy_j=1e-6))
    devices = tuple(ScheduleDevice(name=name, idle_w=0.0) for name in ("fast", "slow"))
    links = tuple(
        Link(origin=a, destination=b, latency_s=MICRO, bytes_per_s=1e9)
        for a, b in (("fast", "slow"), ("slow", "fast"))
    )
    chain = plain_problem({"a": thrifty, "b": thrifty}, "a>b", name="chain", devices=devices)
    write_problem(replace(chain, links=links), tmp_path / "chain.json")
    given = ("plan", "chain.json", "--planner", "heft", "--front", "energy", "--seconds", "1")
    data = json.loads(tilewright(*given, "--format", "json").out)["data"]
    points = [(each["latency_s"], each["energy_j"]) for each in data["front"]]
    assert data["front_of"] == "energy"
    assert points == [
        pytest.approx((us * MICRO, uj * MICRO)) for us, uj in ((20, 10), (41, 6), (60, 2))
    ]
    ran = tilewright(*given, "--out", "plan")
    assert "those that no other beats in latency and energy alike" in ran.out
    assert "Energy against latency" in (tmp_path / "plan" / "plan.html").read_text()


def test_a_plan_that_is_best_in_everything_says_so(tilewright: Command, tmp_path: Path) -> None:
    write_problem(plain_problem({"a": (mode(us=10),)}), tmp_path / "one.json")
    ran = tilewright("plan", "one.json", "--planner", "heft", "--out", "kept")
    said = "The plan is best in everything of the schedules that were considered, 1"
    assert said in ran.out.replace("\n", " ") and "Best in something" not in ran.out
    page = (tmp_path / "kept" / "plan.html").read_text()
    assert said in page and '<div class="chart front"' not in page


def test_where_there_is_nothing_to_gain_it_says_so(tilewright: Command, tmp_path: Path) -> None:
    chain = plain_problem({name: on_cores(20) for name in "abc"}, "a>b b>c")
    write_problem(chain, tmp_path / "chain.json")
    ran = tilewright("plan", "chain.json")
    assert ran.code == 0
    assert "There is nothing to gain over one call after the other." in ran.out
    assert "run at a time: 1 at most, 1.00 in the mean" in ran.out


@pytest.mark.parametrize("seed", range(6))
def test_every_objective_is_shown(tilewright: Command, tmp_path: Path, seed: int) -> None:
    write_problem(random_problem(seed, objective="energy"), tmp_path / "energy.json")
    write_problem(random_problem(seed, objective="price", devices=3), tmp_path / "price.json")
    for objective in ("energy", "price"):
        ran = tilewright("plan", f"{objective}.json", "--seconds", "1")
        assert ran.code == 0 and f"of {objective}" in ran.out, ran.err


def test_bad_input(tilewright: Command, saved: str, tmp_path: Path) -> None:
    ran = tilewright("plan", saved, "--planner", "heff")
    assert ran.code == 2 and "heft" in ran.err
    assert tilewright("plan", "none.json").code == 4
    (tmp_path / "broken.json").write_text("{")
    ran = tilewright("plan", "broken.json")
    assert ran.code == 4 and "broken.json" in ran.err
    late = replace(FORKED, limits=Limits(deadlines_s={"": 10 * MICRO}))
    write_problem(late, tmp_path / "late.json")
    ran = tilewright("plan", "late.json")
    assert ran.code == 4 and "it takes 2.2e-05 s at least" in ran.err
    tight = replace(FORKED, limits=Limits(deadlines_s={"": 30 * MICRO}))
    write_problem(tight, tmp_path / "tight.json")
    ran = tilewright("plan", "tight.json", "--planner", "sequential")
    assert ran.code == 1 and "sequential found no schedule" in ran.err
    assert "its deadline is 3e-05 s" in ran.err and "Traceback" not in ran.err
    small = replace(FORKED, devices=(ScheduleDevice(name="cpu", cores=2, memory_bytes=10),))
    calls = tuple(replace(call, output_bytes=20) for call in small.calls)
    write_problem(replace(small, calls=calls), tmp_path / "small.json")
    ran = tilewright("plan", "small.json")
    assert ran.code == 4 and "bytes of memory of 'cpu', which has 10" in ran.err


def test_in_python(saved: str, tmp_path: Path) -> None:
    with Session() as session:
        found = session.plan(tmp_path / saved, planner="heft", seconds=3)
        assert found.value == pytest.approx(22 * MICRO)
        assert "One call after the other takes 1.55×" in str(found)
        with pytest.raises(UsageError, match="seconds"):
            session.plan(tmp_path / saved, seconds=0)
        with pytest.raises(UsageError, match="no front of 'time' is known"):
            session.plan(tmp_path / saved, front="time")  # type: ignore[typeddict-item]
        with pytest.raises(UsageError, match="in its file"):
            session.plan(tmp_path / saved, wanted=Wanted(deadline_s=1.0))


def test_help(tilewright: Command) -> None:
    ran = tilewright("plan", "--help")
    assert ran.code == 0
    for word in (*SCHEDULERS.names(), "--planner", "--seconds", "--format", "--out"):
        assert word in ran.out

"""Which instances are promised to be best, on imaginary cores: equal ones unless others do clearly
more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tilewright.core.errors import UsageError
from tilewright.serving.demand import EQUALLY_OFTEN, Demand
from tilewright.serving.layouts import Kind, Layout, layout_text, parse_kinds
from tilewright.serving.weighing import Alone, Weighed, weighed, why


def alone(cores: int, **networks: Mapping[int, Mapping[int, float]]) -> Mapping[Layout, Alone]:
    """The times of equal layouts on so many cores, from those of each network by cores and
    batch."""
    sizes = sorted({size for each in networks.values() for size in each}, reverse=True)
    return {
        (size,) * (cores // size): {name: each[size] for name, each in networks.items()}
        for size in sizes
    }


GROWS = {5: {1: 1.0}, 4: {1: 1.6}, 2: {1: 3.6}, 1: {1: 8.0}}
FLAT = {5: {1: 0.5}, 4: {1: 0.5}, 2: {1: 0.5}, 1: {1: 0.5}}


def texts(found: list[Weighed]) -> list[str]:
    return [each.text for each in found]


def test_a_core_that_is_left_over_is_no_reason() -> None:
    """Three instances of five cores leave one of sixteen over, which gains 4 %; two networks that
    suit different sizes gain more."""
    found = weighed(alone(16, a=GROWS), 16, EQUALLY_OFTEN)
    assert texts(found)[0] == "3x5" and texts(found)[-1] == "3x5,1x1"
    assert found[-1].requests_per_s == pytest.approx(3.125)
    assert "Instead: 3x5,1x1, 3.12 requests per second; 4x4, 2.5 " in why(found, EQUALLY_OFTEN)
    found = weighed(alone(16, a=GROWS, b=FLAT), 16, EQUALLY_OFTEN)
    assert texts(found)[0] == "2x5:a,1x4:a,2x1:b"
    assert found[0].requests_per_s == pytest.approx(2 * (1 + 1 + 1 / 1.6))
    first, _, last = found[0].option(1.5, chosen=True).kinds
    assert (first.count, first.cores, first.networks) == (2, 5, ("a",))
    assert (last.count, last.cores, last.networks) == (2, 1, ("b",))
    assert why(found, EQUALLY_OFTEN).startswith(
        "2x5:a,1x4:a,2x1:b should answer 5.25 requests per second, by the times of each network "
        "alone. "
        "Instead: "
    )


def test_equal_instances_win_ties() -> None:
    same = {2: {1: 0.5}, 1: {1: 1.0}}
    found = weighed(alone(2, a=same, b=same), 2, EQUALLY_OFTEN)
    assert all(each.is_equal for each in found)


def test_deadlines_of_each_network() -> None:
    """Only four cores keep the deadline of one network; the other one is best on single cores."""
    slow = {4: {1: 0.03, 2: 0.05}, 2: {1: 0.06, 2: 0.11}, 1: {1: 0.12, 2: 0.23}}
    quick = {4: {1: 0.004, 2: 0.006}, 2: {1: 0.004, 2: 0.007}, 1: {1: 0.005, 2: 0.009}}
    times = alone(8, a=slow, b=quick)
    assert texts(weighed(times, 8, EQUALLY_OFTEN))[0] == "2x4"
    demand = Demand(limits_s={"a": 0.055, "b": 0.02}, rates={"a": 20, "b": 400})
    found = weighed(times, 8, demand)
    assert found[0].text == "1x4@2:a,4x1@2:b" and found[0].in_time
    assert found[0].requests_per_s == pytest.approx(420 * min(40 / 20, 4 * 2 / 0.009 / 400))
    assert "2.00 times the rates that were asked. Instead: 2x4, " in why(found, demand)
    hopeless = Demand(limits_s={"a": 0.01})
    found = weighed(times, 8, hopeless)
    assert found[0].is_equal and "None has time: the slowest " in why(found, hopeless)
    assert ", not in time" in why(found, hopeless)


def test_requests_that_come_at_a_time() -> None:
    """Nine at a time on three cores: seven together on two, two on one."""
    times = {2: {1: 1.0, 2: 1.2, 7: 2.0}, 1: {1: 1.0, 2: 2.0}}
    found = weighed(alone(3, a=times), 3, Demand(burst=9))
    assert found[0].text == "1x2@7,1x1@2" and found[0].seconds == 2.0
    told = why(found, Demand(burst=9, every_s=1.0))
    assert told.startswith("1x2@7,1x1@2 should answer all within 2 s, by the times")
    assert "Instead: 3x1, all within 3 s" in told
    found = weighed(alone(3, a=times, b={2: {1: 0.5}, 1: {1: 0.5}}), 3, Demand(burst=2))
    assert texts(found)[0] == "1x1@2:b,2x1@1:a"
    assert weighed(alone(1, a={1: {1: 1.0}}, b={1: {1: 1.0}}), 1, Demand(burst=2))[0].is_equal


def test_kinds_as_people_write_them() -> None:
    kinds = (Kind(8, 8, ("a", "b")), Kind(4, 4), Kind(4, 4), Kind(1))
    text = "1x8@8:a+b,2x4@4,1x1"
    assert layout_text(kinds) == text and parse_kinds(text) == kinds
    for wrong in ("1x8@", "1x8@0", "1x8:", "@8"):
        with pytest.raises(UsageError, match="names no instances"):
            parse_kinds(wrong)


def test_demands() -> None:
    demand = Demand.read("ab", {"a": 0.5}, {"a": 1, "b": 3}, None)
    assert (demand.deadline_s("a"), demand.deadline_s("b")) == (0.5, None)
    turns = demand.turns("ab")
    assert "".join(next(turns) for _ in range(8)).count("b") == 6
    seldom = Demand(rates={"a": 1, "b": 100})
    sent = [seldom.turns("ab", number / 10) for number in range(10)]
    asked = [next(turns) for turns in sent for _ in range(10)]
    assert asked.count("a") == 1, "ten clients, none of which comes to a hundred requests"
    turns = Demand(every_s=1.0).turns("ab")
    assert "".join(next(turns) for _ in range(4)) == "abab"
    assert Demand.read("ab", 1, None, 4) == Demand(every_s=1.0, burst=4)


@pytest.mark.parametrize(
    ("deadline_s", "rates", "burst", "said"),
    [
        (0, None, None, "deadline_s must be a number above 0"),
        ({"c": 1.0}, None, None, "deadline_s name 'c', which is not served"),
        (None, {"a": 1.0}, None, "no number for 'b'"),
        (None, {"a": 1.0, "b": float("inf")}, None, "rates of 'b' must be a number"),
        (None, {"a": 1.0, "b": 1.0}, 4, "use one"),
        (None, None, 0, "burst"),
    ],
)
def test_demands_that_are_none(deadline_s: object, rates: object, burst: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Demand.read("ab", deadline_s, rates, burst)
